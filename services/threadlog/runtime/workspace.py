"""Naming a thread's workspace."""

from threadlog.ids import WorkspaceId, derive
from threadlog.thread.state import ThreadState


def workspace_id(state: ThreadState) -> WorkspaceId:
    """The id of the thread's workspace: of its own folder, or of the folder it is attached to."""
    workspace = state.config.workspace
    if workspace.path is None:
        return WorkspaceId(derive("workspace", state.tenant_id, state.thread_id))
    return WorkspaceId(derive("workspace", state.tenant_id, "attached", workspace.path))
