"""The log on Kafka: many processes, one topic of events, groups that share its partitions.

`log.KafkaLog` appends and reads, `group.KafkaGroup` is a worker's share of the partitions,
`members.KafkaMembers` says who is alive, `topics.KafkaTopics` what the broker must look like,
`dead_letters.DeadLetterViews` puts pointers to bad records into a topic of their own.

A position is the offset of the next record, so a watermark or a commit is a Kafka offset as it
stands. Reading is apart from membership: the consumers that belong to a group never deliver a
record, and those that deliver records belong to no group.
"""
