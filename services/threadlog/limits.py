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

# JSON, equal for what is read and what is written: HTTP bodies and the bodies of events
BODY_BYTES_MAX = 1 * MIB
"""One HTTP request's body."""
JSON_DEPTH_MAX = 64
"""Objects and lists inside one another."""
JSON_MEMBERS_MAX = 10_000
"""Members of all objects and elements of all lists of one document together."""
JSON_DIGITS_MAX = 24
"""Digits of one number, exponent included: every 64-bit integer and every shortest spelling of a
double (23 digits) fit; so the cost of reading a number stays constant."""

# Inputs
INPUT_WINDOW = 256
"""How many ids of judged inputs a thread's state remembers."""
QUEUE_MAX = 512
"""Messages that wait in one thread's inbox; more are void, and one turn admits them all."""
MESSAGE_BYTES_MAX = 512 * KIB
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

# What is live only
LIVE_PIECES_MAX = 16_384
"""Pieces of one response that are kept for those who join in the middle of it."""
LIVE_KEPT_MS = 900_000
"""How long they are kept behind the last one, where nothing tells that it has ended."""

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

# Metering
USAGE_PARTITIONS_MAX = 8
"""Partitions of the topic of usage facts, where the log has more: a tenant's facts lie in one."""
USAGE_RECORD_FACTS_MAX = 1_000
"""Facts of one record; with every amount set such a record has some 300 KiB."""
MINUTES_KEPT = 120
HOURS_KEPT = 72
DAYS_KEPT = 400
"""Windows of a tenant that are kept, the present one included; the sums of all time always are."""
METERED_TENANTS_MAX = 50
"""Tenants that metering shows by name; the rest are `other`."""
METERING_STALL_MS = 120_000
"""How long metering may stand still before facts that it has not counted; it ends then."""
METERING_ACK_MS = 30_000
"""How long the broker may take to acknowledge windows; metering ends then."""

# Gateway: requests and streams
REQUESTS_PER_MINUTE = 6_000
"""Default for a tenant, in each gateway process."""
STREAMS_PER_TENANT = 1_000
"""Default for a tenant, in each gateway process."""
WAITS_PER_TENANT = 256
"""Requests that wait for a turn, a receipt or a cursor: default for a tenant, in each gateway
process; few enough that no tenant has every connection of a process that may open 1,024 files."""
PAGE_EVENTS_DEFAULT = 50
PAGE_BYTES_MAX = 256 * KIB
"""Events of one page, encoded; a page has at least one event, however large."""
SCANNED_EVENTS_MAX = 4 * READ_EVENTS_MAX
SCANNED_BYTES_MAX = 8 * MIB
"""Events that a filter by type looks at for one page; one event more, however large."""
THREADS_SCANNED_MAX = 2_000
"""Threads that a filter looks at for one page."""
PROMPT_BYTES_MAX = 8 * MIB
"""A model request that is rebuilt over HTTP; it takes several times that while it is."""
HELD_BYTES_TENANT_MAX = 64 * MIB
HELD_BYTES_MAX = 256 * MIB
"""Bodies that come in or are in use, and large answers that are not read yet, in each gateway."""
SMALL_ANSWER_BYTES = 64 * KIB
"""An answer up to here is one piece of the wire, and does not count."""
USAGE_LINES_MAX = 10_000
"""Groups of one usage report over HTTP."""
WAIT_S_MAX = 60
"""How long an answer may be put off until a turn has ended, seconds."""
RECEIPT_MS = 10_000
"""How long a read waits until the views have passed a receipt, or have reached a cursor."""
WAIT_LEFT_MS = 1_000
"""How long a wait goes on for a client that sends nothing more: it may still read its answer."""
STREAM_FRAMES_MAX = 256
STREAM_BYTES_MAX = 1 * MIB
"""What waits for one reader of a stream; then deltas are left out, then it is told to come back."""
STREAM_HEARTBEAT_MS = 15_000
STREAM_LIFE_MS = 3_600_000
STREAM_AUTH_MS = 5_000
"""How often a stream asks whether its key is still valid."""
STREAM_FRESH_MS = 1_000
STREAM_LOST_MS = 30_000
"""How long a stream bears with views that do not answer, before it ends with a problem."""

# Gateway: connections
CONNECTIONS_MAX = 4_096
"""Open at a time; fewer where the process may not open that many files."""
LISTEN_BACKLOG = 512
REFUSALS_MAX = 64
"""Connections over the bound that are being told so; one more is cut without a word."""
METHOD_CHARS_MAX = 32
TARGET_BYTES_MAX = 8 * KIB
HEADER_BYTES_MAX = 32 * KIB
"""All header fields of a request; of trailers and chunk lines too."""
HEADER_FIELDS_MAX = 100
BODY_HELD_BYTES = 64 * KIB
"""What is kept of a body until the application takes it; then no more is read."""
BODY_CHUNKS_MAX = 16_384
"""Chunks of one chunked body: each costs the same, however little is in it."""
WIRE_EVENTS_MAX = 256
"""What one connection's input may hold of the loop at a time; then it is another one's turn."""
HEAD_MS = 10_000
"""From a connection, or the first byte of its next request, to the end of the request's head."""
KEEP_ALIVE_MS = 75_000
BODY_READ_MS = 30_000
"""From the end of the head to the end of the body."""
STREAM_WRITE_MS = 30_000
"""How long a client may leave what the server holds for it unread; then it is cut."""
CLIENT_GONE_MS = 4 * STREAM_WRITE_MS
"""How long the system may hold something for a client that takes nothing; then it is gone."""
WRITE_PIECE_BYTES = 64 * KIB
"""What the process holds of an answer for one connection: the next piece waits until it is gone."""
SEND_BUFFER_BYTES = 128 * KIB
"""What the system holds of it besides; Linux takes twice as much."""
CLOSE_READ_MS = 2_000
CLOSE_READ_BYTES = 4 * MIB
"""What a client may still send while it is told that its request was not taken whole. Without
that, the system would answer it with a reset and our answer would be lost."""
GATEWAY_GRACE_MS = 5_000
"""From the stop of a gateway to the end of the last request."""
GATEWAY_END_MS = 1_000
"""What a request that is cut then may take to end; one that does not is left behind."""

# Client of a gateway
CLIENT_CONNECT_MS = 5_000
CLIENT_REQUEST_MS = 60_000
"""One request and its answer, which a gateway may put off until its views have followed."""
CLIENT_TRIES_MAX = 3
"""How often a request with an idempotency key is sent; one without is sent once."""
CLIENT_RETRY_MS = 250
"""Before the second try; it doubles, with jitter."""
CLIENT_WAIT_MS = 10_000
"""The longest pause before a try; a gateway that asks for a longer one is not asked again."""
CLIENT_VERDICT_MS = 30_000
"""How long a command waits until the views have judged what it appended."""
CLIENT_PAGES_MAX = 64
"""Page tokens that are kept, so that the next page begins exactly behind the last."""
CLIENT_SILENCE_MS = 3 * STREAM_HEARTBEAT_MS
"""A stream that is silent for so long is taken for broken."""
CLIENT_AWAY_MS = 60_000
"""How long a stream may fail to come back before whoever follows it is told."""
CLIENT_BROKEN_MAX = 3
"""How often in a row a stream may break its own form before whoever follows it is told."""
CLIENT_FRAME_BYTES_MAX = 4 * MIB
"""One frame of a stream."""
CLIENT_BODY_BYTES_MAX = 64 * MIB
"""One answer; the longest that are meant are blobs."""

# Metrics server
METRICS_REQUEST_MS = 5_000
"""One request from connection to answer; above it, the connection is closed."""
METRICS_REQUESTS_MAX = 64
"""Requests at a time, each on a thread; one more is closed unanswered."""

# Traces
TRACESTATE_CHARS_MAX = 512
"""What the W3C asks every system to carry; a longer one is left out."""
TRACESTATE_MEMBERS_MAX = 32
TRACE_QUEUE_SPANS_MAX = 4_096
"""Spans that wait to be sent; more are dropped, and nothing ever waits for them."""
TRACE_BATCH_SPANS_MAX = 512
TRACE_EVERY_MS = 1_000
"""How long a span waits for company."""
TRACE_SEND_MS = 2_000
"""One request to the collector. A stop waits for the last one at most this long."""
TRACE_TURNS_MAX = 4_096
"""Turns, and inputs that one may take, whose trace a service remembers."""
TRACE_LINKS_MAX = 32
"""Requests that one turn is linked to: it may admit `QUEUE_MAX` messages."""

# Views in Redis
VIEW_CALL_THREADS_MAX = 100
VIEW_CALL_BYTES_MAX = 1 * MIB
"""What one call brings in: while it runs, Redis answers nobody else."""
RECENT_EVENTS_MAX = 1_000
"""Newest events of a thread that are kept whole; older ones are read from the log."""
RECENT_IDLE_MS = 3_600_000
"""How long they are kept after the last one came."""

# API keys
KEYS_MAX = 4_096
"""Keys of one file, those counted that are over; a gateway reads all of them after a change."""
KEYS_FILE_BYTES_MAX = 2 * MIB
KEYS_PER_NAME_MAX = 2
"""Keys that are valid at a time under one name: the one in use, and the one that follows it."""
KEYS_LOOK_MS = 1_000
"""How often a gateway looks whether the keys file changed: a revoked key is valid no longer."""
KEY_USES_SAVE_MS = 60_000
"""How often a gateway writes down when keys were used last."""
TIME_MS_MAX = 253_402_300_799_999
"""The last millisecond since the epoch that RFC 3339 can write."""

# Doctor
DOCTOR_CHECK_MS = 10_000
"""One check, from its start to its finding; all of them run at once."""
DOCTOR_SLOW_MS = 2_000
"""After that a person at a terminal is told what is waited for."""
DOCTOR_DISK_MIN = 16 * MIB
DOCTOR_DISK_LOW = 512 * MIB
"""Free bytes of a file system: below the first nothing can be relied on, below the second warn."""
DOCTOR_INODES_MIN = 100
DOCTOR_INODES_LOW = 10_000
"""The same in files that can still be made."""
DOCTOR_INTEGRITY_BYTES_MAX = 1_024 * MIB
"""A log file that is larger is not read through."""
DOCTOR_REDIS_MEMORY_PERCENT = 90
"""Of its limit; above it, a warning."""
DOCTOR_SKEW_MS = 5_000
"""By how much two clocks may differ: due times and expiries go by them, no order does."""
DOCTOR_LAG_WARN_MS = 15_000
DOCTOR_LAG_FAIL_MS = 60_000
"""How long a record may wait for the views, or for a worker."""
DOCTOR_PROGRESS_MS = 2_500
"""Between two looks at what a group has committed; workers commit once a second."""
DOCTOR_KEPT_MINUTES_MIN = 7 * 24 * 60
"""For how long a broker must keep the commits of a group without members: a week."""
DOCTOR_BLOB_RECORDS = 200
"""Newest records that are searched for blobs."""

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
assert SMALL_ANSWER_BYTES <= WRITE_PIECE_BYTES
assert 8 * BODY_BYTES_MAX < HELD_BYTES_TENANT_MAX
assert OUTPUT_BYTES_MAX < HELD_BYTES_TENANT_MAX < HELD_BYTES_MAX
assert 6 * PROMPT_BYTES_MAX < HELD_BYTES_TENANT_MAX
assert COMMAND_BYTES_MAX < FILE_KEPT_BYTES_MAX <= FILE_BYTES_MAX < SANDBOX_FILE_BYTES_MAX
assert 2 * FILE_KEPT_BYTES_MAX + READ_WINDOW_BYTES < OUTPUT_BYTES_MAX
assert READ_WINDOW_BYTES < OUTPUT_HEAD_BYTES + OUTPUT_TAIL_BYTES
assert RETRY_BASE_MS < RETRY_CAP_MS < MODEL_TOTAL_MS
assert MODEL_CONNECT_MS < MODEL_IDLE_MS < MODEL_TOTAL_MS
assert CALL_TIMEOUT_MS < WORKER_DRAIN_MS <= WORKER_DRAIN_MS_MAX
assert EVENT_BYTES_MAX < VIEW_CALL_BYTES_MAX
assert EVENT_BYTES_MAX < BODY_BYTES_MAX
assert MESSAGE_BYTES_MAX <= BODY_BYTES_MAX
assert QUEUE_MAX + 8 * OUTPUT_PARTS_MAX + 16 * CALLS_PER_STEP_MAX < JSON_MEMBERS_MAX  # of one event
assert len(str(2**64)) < JSON_DIGITS_MAX
assert READ_EVENTS_MAX < RECENT_EVENTS_MAX
assert CALLS_PER_STEP_MAX < APPEND_EVENTS_MAX // 2
assert SANDBOX_START_MS < CLAIM_TTL_MS < DRAIN_TIMEOUT_MS
assert KEYS_MAX * 512 <= KEYS_FILE_BYTES_MAX  # the longest record has 490
assert REFUSALS_MAX < CONNECTIONS_MAX
assert WAITS_PER_TENANT < CONNECTIONS_MAX // 8
assert WAIT_LEFT_MS < RECEIPT_MS < WAIT_S_MAX * 1_000
assert METHOD_CHARS_MAX < TARGET_BYTES_MAX < HEADER_BYTES_MAX
assert BODY_BYTES_MAX < CLOSE_READ_BYTES
assert CLOSE_READ_MS < GATEWAY_GRACE_MS < HEAD_MS < BODY_READ_MS < KEEP_ALIVE_MS
assert EVENT_BYTES_MAX < CLIENT_FRAME_BYTES_MAX < CLIENT_BODY_BYTES_MAX
assert CLIENT_RETRY_MS * 2**CLIENT_TRIES_MAX < CLIENT_WAIT_MS < CLIENT_REQUEST_MS
assert CLIENT_CONNECT_MS < CLIENT_REQUEST_MS
assert DOCTOR_SLOW_MS < DOCTOR_PROGRESS_MS < DOCTOR_CHECK_MS
assert DOCTOR_LAG_WARN_MS < DOCTOR_LAG_FAIL_MS
assert RECEIPT_MS < CLIENT_VERDICT_MS < CLIENT_REQUEST_MS
