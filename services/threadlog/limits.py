"""Every bound of the system, with its unit, and the relations between them asserted."""

KIB = 1024
MIB = 1024 * KIB

# Events and the log
EVENT_BYTES_MAX = 512 * KIB
"""One encoded event, envelope included; stays under the default `message.max.bytes` of a broker."""
INLINE_BYTES_MAX = 64 * KIB
"""One content member; a longer one goes to the blob store first."""
APPEND_EVENTS_MAX = 512
READ_EVENTS_MAX = 500
JSON_DEPTH_MAX = 64

# Inputs
INPUT_WINDOW = 256
"""How many ids of judged inputs a thread's state remembers."""
QUEUE_MAX = 512
"""Messages that wait in one thread's inbox; more are void, and one turn admits them all."""
MESSAGE_BYTES_MAX = 1 * MIB
IDEMPOTENCY_KEY_CHARS_MAX = 256

# Steps and calls
STEPS_PER_TURN_MAX = 50
"""Default cap; the turn then ends `budget`. It becomes a policy later."""
CALLS_PER_STEP_MAX = 64
MODEL_ATTEMPTS_MAX = 5
DEATHS_MAX = 3
"""A step or call settled this often by its worker's death is not tried again."""
PROVIDER_CALL_ID_CHARS_MAX = 256
TOOL_NAME_CHARS_MAX = 256
COMMAND_BYTES_MAX = 60 * KIB
"""One command line: fits inline in its event, and in one argv string (Linux takes 128 KiB)."""

# Times, milliseconds
CLAIM_TTL_MS = 5_000
RETRY_BASE_MS = 500
RETRY_CAP_MS = 60_000
CALL_TIMEOUT_MS = 120_000
MODEL_IDLE_MS = 60_000
MODEL_TOTAL_MS = 600_000
DRAIN_TIMEOUT_MS = 30_000
WORKER_DRAIN_MS = 130_000
"""Default for a service of a cluster: a restart in turn cuts no call of default length off."""
WORKER_DRAIN_MS_MAX = 3_600_000
REVOKE_MS = 2_000
"""How long a worker may take to let a partition go: its poll stands still meanwhile."""

# Tool output
OUTPUT_HEAD_BYTES = 8 * KIB
OUTPUT_TAIL_BYTES = 8 * KIB
OUTPUT_BYTES_MAX = 16 * MIB
"""What is kept of one call's output; the rest is counted and dropped."""

# Files of a workspace
FILE_BYTES_MAX = 8 * MIB
"""What `read`, `write` and `edit` take; a larger file is for the shell's tools."""
FILE_KEPT_BYTES_MAX = 1 * MIB
"""Content of one side of a file change; of a longer one only hash and size are kept."""
READ_WINDOW_BYTES = 15 * KIB
"""What one `read` prints of a file; it fits the inline output, so it is never cut in the middle."""

# Sandbox: one call
SANDBOX_PROCESSES_MAX = 128
SANDBOX_PSS_BYTES_MAX = 2 * KIB * MIB
"""Resident memory of a call's whole tree, shared pages counted once; above it, it is killed."""
SANDBOX_ADDRESS_BYTES_MAX = 4 * KIB * MIB
"""Address space of one process."""
SANDBOX_FILE_BYTES_MAX = 256 * MIB
SANDBOX_TMP_BYTES_MAX = 256 * MIB
SANDBOX_SHM_BYTES_MAX = 64 * MIB
SANDBOX_MEMLOCK_BYTES_MAX = 64 * KIB
SANDBOX_FILES_OPEN_MAX = 512
SANDBOX_CPU_S_MAX = 60
"""Seconds of processor time of one process."""
SANDBOX_START_MS = 4_000
"""How long a sandbox may take until it can be given its command; above it, the call is refused."""
KILL_WAIT_MS = 2_000
"""From the deadline of a call, or its cancel, to the end of its whole tree."""
ORPHAN_WAIT_MS = 5_000
"""How long a killed process of an earlier life may take to end before the start is refused."""

# Model replies
REPLY_BYTES_MAX = 8 * MIB
"""Decoded content of one reply: text, thinking and arguments, and any one line of its stream."""
REPLY_WIRE_BYTES_MAX = 4 * REPLY_BYTES_MAX
"""One reply decoded, framing included: a streamed token costs some 300 bytes around it."""
REPLY_EVENTS_MAX = 500_000
"""Events of one streamed reply; about one a token."""
REPLY_PARTS_MAX = 256
"""Parts of one reply: how often text and thinking may take turns."""
OUTPUT_PARTS_MAX = 2 * REPLY_PARTS_MAX
"""Parts of one response in its event, a provider's own blocks included."""
SIGNATURE_CHARS_MAX = 64 * KIB
ERROR_BODY_BYTES_MAX = 64 * KIB
"""What is read of the body of a failed request, decoded; the rest is cut."""
MODEL_CONNECT_MS = 10_000
MODEL_TAIL_MS = 5_000
"""How long a reply that is complete is waited on for its usage and the end of its stream."""

# Cluster
PARTITIONS_MAX = 1_024

# Metrics server
METRICS_REQUEST_MS = 5_000
"""One request from connection to answer; above it, the connection is closed."""
METRICS_REQUESTS_MAX = 64
"""Requests at a time, each on a thread; one more is closed unanswered."""

# Views in Redis
VIEW_CALL_THREADS_MAX = 100
VIEW_CALL_BYTES_MAX = 1 * MIB
"""What one call brings in: while it runs, Redis answers nobody else."""
RECENT_EVENTS_MAX = 1_000
"""Newest events of a thread that are kept whole; older ones are read from the log."""
RECENT_IDLE_MS = 3_600_000
"""How long they are kept after the last one came."""

# Memory
LANES_MAX = 2_000
"""Threads held in memory by one service; idle ones leave, least recently used first."""
SNAPSHOT_EVERY_EVENTS = 64
BACKLOG_RECORDS_MAX = 10_000
"""Records that wait in one worker for threads that are being loaded; above it, it reads no more
until a quarter is left."""

assert INLINE_BYTES_MAX + 64 * KIB < EVENT_BYTES_MAX
assert OUTPUT_HEAD_BYTES + OUTPUT_TAIL_BYTES < INLINE_BYTES_MAX
assert COMMAND_BYTES_MAX < MESSAGE_BYTES_MAX
assert COMMAND_BYTES_MAX < FILE_KEPT_BYTES_MAX <= FILE_BYTES_MAX < SANDBOX_FILE_BYTES_MAX
assert 2 * FILE_KEPT_BYTES_MAX + READ_WINDOW_BYTES < OUTPUT_BYTES_MAX
assert READ_WINDOW_BYTES < OUTPUT_HEAD_BYTES + OUTPUT_TAIL_BYTES
assert RETRY_BASE_MS < RETRY_CAP_MS < MODEL_TOTAL_MS
assert MODEL_CONNECT_MS < MODEL_IDLE_MS < MODEL_TOTAL_MS
assert CALL_TIMEOUT_MS < WORKER_DRAIN_MS <= WORKER_DRAIN_MS_MAX
assert EVENT_BYTES_MAX < VIEW_CALL_BYTES_MAX
assert READ_EVENTS_MAX < RECENT_EVENTS_MAX
assert CALLS_PER_STEP_MAX < APPEND_EVENTS_MAX // 2
assert SANDBOX_START_MS < CLAIM_TTL_MS < DRAIN_TIMEOUT_MS
