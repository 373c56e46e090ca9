"""What the model is told about its one tool: a description and a JSON schema of the arguments.

Both texts are part of every request, byte for byte (DESIGN law 6): a change of one letter changes
the hash of the tools. They name no limit that a runner may set otherwise.
"""

TOOL_NAME = "cli"

TOOL_DESCRIPTION = """\
Runs one command line in this thread's workspace and returns its output and exit status.
Three built-ins, each only when it is the whole line:
  read PATH [FROM[:TO]]        print lines as N:hash|text, and the file's hash
  read @CALL_ID FROM:TO        read on in the long output of an earlier call
  write PATH CONTENT           make or replace a file, or give the content as a heredoc:
      write src/a.py <<'EOF'
      content, taken as it stands
      EOF
  edit PATH --base HASH OLD NEW    replace OLD, which must occur exactly once, by NEW
  edit PATH --base HASH FROM:TO <<'EOF'    replace these lines; FROM = TO+1 inserts before FROM
HASH is the one that read, write or edit printed last; a file changed since then is refused.
A built-in takes no pipe, redirect, ;, &&, variable or unquoted *: quote with '...' and <<'EOF'.
Everything else is a line for sh: pipes, loops, tests, git, python3, and so on.
Paths are relative to the workspace. Prefer read, write and edit for files over cat, sed and tee.
Each line starts fresh in the workspace: cd and export do not last. There is no network and no
terminal, standard input is empty, and processes left behind end with the line.
A long output is cut in the middle; it says how to read on."""

TOOL_PARAMETERS = (
    '{"additionalProperties":false,"properties":{"command":'
    '{"description":"The command line.","type":"string"}},'
    '"required":["command"],"type":"object"}'
)
