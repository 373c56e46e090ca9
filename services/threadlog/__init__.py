"""Threadlog: AI agents as event-sourced threads.

The layers, from the top; a module imports only from lines below its own::

    cli                                      what a person types
    bootstrap                                the only module that names adapters
    planner | tool_runner | projection | gateway | client
    adapters | runtime | commands            technology | worker machinery | request to events
    ports                                    log, snapshots, views, notify, blobs, model, tools
    telemetry | settings | faults | clock
    thread | api                             pure: state, fold, decide, transcript | wire types
    events                                   pure: vocabulary, catalog, upcast, codec
    ids | limits
    errors

The flow of one turn: a command appends ``message.received``; the planner folds it, decides, appends
``turn.started`` and its claim ``step.started``, reads the claim back, calls the model and appends
``model.responded``; the tool-runner claims each requested call, reads its claim back, runs it and
appends ``tool.finished``; the planner goes on with the next step or appends ``turn.finished``. The
projection follows behind and keeps the views that every read is served from.

On a file all of them run in one process. On Kafka and Redis each is a process of its own that
serves the partitions its group deals out.
"""
