"""Planted mistakes: each is a piece of the code under test, and what takes its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["PLANTS", "Plant"]


@dataclass(frozen=True, slots=True)
class Plant:
    """A mistake.

    Parameters
    ----------
    what : str
        What is wrong with it.
    module : str
        Below ``pyspark_rocketmq``.
    before, after : str
        A piece of its source, and what takes its place.
    """

    what: str
    module: str
    before: str
    after: str

    @property
    def path(self) -> str:
        """Return the end of the module's file name."""
        return f"pyspark_rocketmq/{self.module.replace('.', '/')}.py"


PLANTS: Final = tuple(
    Plant(*each)
    for each in (
        # --- connections
        (
            "what the socket did not take is forgotten",
            "client.net.frame_socket",
            "outgoing[0] = view[sent:]",
            "outgoing.popleft()",
        ),
        (
            "bytes that TLS has read ahead are waited for",
            "client.net.frame_socket",
            "received == len(room) or self._stream.reads_ahead",
            "received == len(room)",
        ),
        (
            "a half-open connection is used forever",
            "client.net.connection",
            "if silent_ms >= deadline.timeout_ms >= _SILENCE_MS:",
            "if False:",
        ),
        (
            "connections to a proxy that is gone are waited for one after the other",
            "client.net.pull_lanes",
            "self._close_silent(begin_s)",
            "pass",
        ),
        (
            "an unfinished frame is lost with its buffer",
            "client.net.receive_buffer",
            "data[self._start : self._end] = memoryview(old)[start:end]",
            "pass",
        ),
        (
            "the first answer is given to whoever waits",
            "client.net.connection",
            "here = [(opaque, answers.pop(opaque)) for opaque in opaques if opaque in answers]",
            "here = [(opaque, answers.pop(next(iter(answers)))) for opaque in opaques if answers]",
        ),
        (
            "a dead connection is used again",
            "client.net.pool",
            "if connection.alive:\n                return connection",
            "if True:\n                return connection",
        ),
        (
            "the time-out of a request counts from its own begin",
            "client.clock",
            "self._at = max(self._at, at_s + self.timeout_ms / 1000)",
            "pass",
        ),
        # --- routes
        (
            "name servers that know no broker make a topic missing",
            "planning.topics.missing_topic",
            "if registered is not None and not registered:",
            "if False:",
        ),
        (
            "a route is never looked up again",
            "client.routes.routing",
            "known is not None and topic not in self._stale and now < known[1]",
            "known is not None",
        ),
        (
            "the owner of a static topic's queue is never looked up",
            "client.read.replica_choice",
            "name = route.owner(self._queue)",
            "name = name",
        ),
        (
            "whoever waits for another's look-up gets nothing",
            "client.net.host",
            "self._values.append(value)\n            self._turn.notify_all()",
            "self._values.append(value)",
        ),
        # --- pulls
        (
            "answers that came with one that could not be judged stay in flight",
            "client.read.range_pull",
            """\
        asks = {self._in_flight.pop(opaque)[0]: response for opaque, response in answers}
        try:
            for ask, response in asks.items():
                if not pull_answer.is_busy(response):
                    self._digest(ask, response)
        finally:
            for ask in asks:  # those without a result, also after an error: they are not in flight any more
                self._window.record_refusal(ask.offset)
""",
            """\
        for opaque, response in answers:
            ask = self._in_flight.pop(opaque)[0]
            if pull_answer.is_busy(response):
                self._window.record_refusal(ask.offset)
            else:
                self._digest(ask, response)
""",
        ),
        (
            "after a failure, pulls in flight are still waited for",
            "client.read.range_pull",
            "self.close()\n        self._window.restart()",
            "self.close()",
        ),
        (
            "answers are taken whole where they overlap",
            "planning.pulling.pull_window",
            "taken.append(Taken(payload, self.expected, until))",
            "taken.append(Taken(payload, 0, until))",
        ),
        (
            "an answer counts up to where its pull was meant to end",
            "planning.pulling.pull_window",
            "end = min(next_offset, self.until)",
            "end = min(asked + pull.size, self.until)",
        ),
        (
            "what is left of a short answer is not asked for",
            "planning.pulling.pull_window",
            "        if end > pull.owed_until:",
            "        pull.owed_from = pull.owed_until\n        if end > pull.owed_until:",
        ),
        (
            "every hole is natural",
            "client.read.range_pull",
            "if self._holes_are_natural is None:",
            "self._holes_are_natural = True\n        if self._holes_are_natural is None:",
        ),
        (
            "no hole is natural",
            "client.read.range_pull",
            "if self._holes_are_natural is None:",
            "self._holes_are_natural = False\n        if self._holes_are_natural is None:",
        ),
        (
            "a range is done before its last offset",
            "planning.pulling.pull_window",
            "return self.expected >= self.until",
            "return self.expected >= self.until - 1",
        ),
        (
            "the distance of a static topic's part is left out",
            "client.read.pull_answer",
            'int(fields.get("offsetDelta", 0)),',
            "0,",
        ),
        (
            "a batch of rows is dropped on its way",
            "client.read.queue_reader",
            "            if kept.num_rows:\n                yield kept\n        run.pull",
            "            if kept.num_rows > 1:\n                yield kept\n        run.pull",
        ),
        (
            "answers that wait for an earlier one take no room",
            "client.read.range_pull",
            "return self._window.held_bytes + len(self._in_flight) * self._hint.expected_bytes",
            "return len(self._in_flight) * self._hint.expected_bytes",
        ),
        (
            "pulls in flight take no room",
            "client.read.range_pull",
            "return self._window.held_bytes + len(self._in_flight) * self._hint.expected_bytes",
            "return self._window.held_bytes",
        ),
        (
            "each range has the room of all",
            "client.read.range_reader",
            "- sum(pull.bytes_due for pull in self._active)",
            "- sum(pull.bytes_due for pull in [])",
        ),
        # --- planning
        (
            "new queues wait forever",
            "spark.read.stream",
            "begins |= self._new_begins(origin, ends)",
            "self._new_begins(origin, ends)",
        ),
        (
            "queues that came later begin at their ends",
            "planning.topics.discovery",
            "begin = (begins or {}).get(queue, start.get(queue))",
            "begin = start.get(queue, end[queue])",
        ),
        (
            "a queue whose broker is away loses its position",
            "planning.topics.discovery",
            "limit = max_offsets.get(queue, position)",
            "limit = max_offsets.get(queue, position + 1)",
        ),
        (
            "a batch begins one message too late",
            "planning.topics.discovery",
            "ranges.append(OffsetRange(queue, begin, end[queue]))",
            "ranges.append(OffsetRange(queue, min(begin + (begin % 7 == 6), end[queue]), end[queue]))",
        ),
        (
            "a batch begins one message too early",
            "planning.topics.discovery",
            "ranges.append(OffsetRange(queue, begin, end[queue]))",
            "ranges.append(OffsetRange(queue, begin - (begin % 7 == 6), end[queue]))",
        ),
        (
            "the parts of a queue overlap",
            "planning.split",
            "return [OffsetRange(r.queue, begin, end) for begin, end in itertools.pairwise(bounds)]",
            (
                "return [OffsetRange(r.queue, begin - (begin > r.from_offset), end)"
                " for begin, end in itertools.pairwise(bounds)]"
            ),
        ),
        (
            "one part of a queue is missing",
            "planning.split",
            "return [OffsetRange(r.queue, begin, end) for begin, end in itertools.pairwise(bounds)]",
            (
                "return [OffsetRange(r.queue, begin, end)"
                " for begin, end in itertools.pairwise(bounds)][: max(1, count - 1)]"
            ),
        ),
        (
            "what is planned is committed",
            "spark.read.stream",
            "        self._record_finished(last)\n",
            "        self._record_finished(self._newest or last)\n",
        ),
        (
            "a broker that does not answer hides all others",
            "offsets.offset_lookup",
            "if not may_come_back(error) or not ends.readable:",
            "if True:",
        ),
        (
            "the plan of a batch depends on the moment",
            "spark.read.stream",
            "ranges = plan_ranges(begin.offsets, until.offsets, until.begin)",
            (
                "ranges = plan_ranges(begin.offsets, {q: max(e, (self._newest or until).offsets.get(q, e))"
                " for q, e in until.offsets.items()}, until.begin)"
            ),
        ),
        (
            "a batch that is read again has today's limit",
            "spark.read.stream",
            "ranges = plan_ranges(begin.offsets, until.offsets, until.begin)",
            (
                "ranges = plan_ranges(begin.offsets, until.offsets, until.begin)\n"
                "        if most := self._options.max_offsets_per_trigger:\n"
                "            ranges = [type(r)(r.queue, r.begin, min(r.end, r.begin + most)) for r in ranges]"
            ),
        ),
        (
            "what was removed is not counted",
            "client.read.range_pull",
            "removed.until_offset, fail_on_data_loss=fail)\n        self.lost.append(decision.lost)",
            "removed.until_offset, fail_on_data_loss=fail)",
        ),
        (
            "answers after the grace period end the planning",
            "offsets.reachable",
            "del waiting[question.broker_name]",
            "pass",
        ),
        # --- sends
        (
            "a failed send counts as acknowledged",
            "client.send.send_pipeline",
            "            self._handle_failure(flight, error)\n        else:\n            self._report",
            (
                "            self._report(SendOutcome(flight.token, flight.outgoing, None, None))\n"
                "            self._next_in_lane(flight)\n        else:\n            self._report"
            ),
        ),
        (
            "sends of a lane overtake each other",
            "client.send.send_pipeline",
            "if len(lane) == 1:\n                self._ready.append(flight)",
            "if True:\n                self._ready.append(flight)",
        ),
        (
            "an outage is not waited for",
            "client.send.send_pipeline",
            "waits = error.outage and flight.patience.remaining_s > pause_s",
            "waits = False",
        ),
        (
            "a send that timed out is not sent again",
            "client.send.send_pipeline",
            "            self._waiting.append(flight)\n            return",
            "            self._report(SendOutcome(flight.token, None, None, error))\n            return",
        ),
        (
            "an outage that is waited for uses up the retries of a send",
            "client.send.send_pipeline",
            "tried = flight.failures if error.outage else flight.refusals",
            "tried = flight.failures",
        ),
        # --- a task of the sink
        (
            "a task does not wait for its last answers",
            "spark.write.write_task",
            "            self._judge(pipeline.flush())\n            while",
            "            while",
        ),
        (
            "rows of a key go to several queues",
            "spark.write.sink_topics",
            "queue_numbers(rows.sharding_key.take(keyed), len(queues))",
            "np.arange(len(keyed)) % len(queues)",
        ),
        (
            "rows of a key overtake each other",
            "spark.write.write_task",
            "self._ordered = is_ordered(options, layout)",
            "self._ordered = False",
        ),
        (
            "rows are sent to the queue of others",
            "spark.write.write_task",
            "number = int(numbers[parcel.start])",
            "number = int(numbers[0])",
        ),
        (
            "a send that is repeated goes to any queue",
            "client.send.send_pipeline",
            "self._producer.choose(flight.outgoing.topic, flight.fixed)",
            "self._producer.choose(flight.outgoing.topic, None if flight.failures else flight.fixed)",
        ),
        (
            "write ids depend on the attempt",
            "spark.write.write_task",
            "content_ids(rows, self._scope.job.encode(),",
            'content_ids(rows, f"{self._scope.job}{id(self)}".encode(),',
        ),
        (
            "rows of a record batch share a write id",
            "spark.write.write_task",
            "pa.array(ids, pa.binary())",
            "pa.array([ids[0]] * len(rows), pa.binary())",
        ),
        (
            "the last row of a record batch is not sent",
            "spark.write.parcels",
            "yield batch.slice(start, rows)",
            "yield batch.slice(start, max(1, min(rows, batch.num_rows - 1)))",
        ),
        (
            "only the last record batch is counted",
            "spark.write.write_task",
            "self._report.rows += len(columns)",
            "self._report.rows = len(columns)",
        ),
        # --- dead letters
        (
            "a task does not wait for its dead letters",
            "spark.write.write_task",
            "while self._dead_letters.unsent:",
            "while False:",
        ),
        (
            "a batch of which one row is refused is one dead letter",
            "spark.write.write_task",
            "        if not outcome.outgoing.batch:\n",
            "        if True:\n",
        ),
        (
            "of a batch that is refused only the first row is sent again",
            "spark.write.write_task",
            "singles = tuple(split_batch(outcome.outgoing))",
            "singles = tuple(split_batch(outcome.outgoing))[:1]",
        ),
        (
            "a dead letter waits for one broker while others are there",
            "spark.write.dead_letters",
            "self._producer.ids), loose=True, token=_DEAD)",
            "self._producer.ids), self._producer.choose(message.topic), token=_DEAD)",
        ),
        (
            "a dead letter of a staged write names the staging topic",
            "spark.write.dead_letters",
            "if self._options.is_staged:",
            "if False:",
        ),
        # --- transactions
        (
            "a batch that was decided is decided again by the next driver",
            "spark.write.transaction",
            "decided = name.number in undone or self._is_done(name)",
            "decided = False",
        ),
        (
            "half messages are committed before their batch is decided",
            "spark.write.transaction",
            "        self._log.decide(decision, lease.claim)\n        lease.confirm(now=True)",
            (
                "        self._carry_out(decision, halves, lease)\n"
                "        self._log.decide(decision, lease.claim)\n"
                "        lease.confirm(now=True)"
            ),
        ),
        (
            "a driver that was replaced commits",
            "spark.write.transaction_lease",
            "if self._log.newest_claim(self._owner) != self.claim:",
            "if False:",
        ),
        (
            "a commit without an answer is sent again",
            "client.send.half_messages",
            "if once.lost and ending is Ending.COMMIT:",
            "if False:",
        ),
        (
            "what is committed already is not searched for",
            "client.send.committed_scan",
            'return self._halves.filter(pc.invert(pc.is_in(self._halves["msgId"], value_set=found)))',
            "return self._halves",
        ),
        (
            "a batch is finished before it is committed",
            "spark.write.transaction",
            "        lost = HALF_SCHEMA.empty_table()\n        while halves.num_rows:",
            (
                "        lost = HALF_SCHEMA.empty_table()\n"
                "        self._log.finish(decision.name)\n"
                "        while halves.num_rows:"
            ),
        ),
        (
            "what was committed is searched from the queue's present end",
            "client.send.committed_scan",
            "self._reached = dict(since)",
            "self._reached = dict(client.max_offsets(since))",
        ),
        (
            "an interrupted commit is left as it is",
            "spark.write.transaction",
            (
                "        for number in undone:\n"
                "            self._finish(TransactionName(name.owner, number), lease)\n"
                "        if decided"
            ),
            "        if decided",
        ),
        # --- the resolver of transactions
        (
            "half messages of the batch that is being written are rolled back",
            "spark.write.transaction_checker",
            "done is not None and name.number <= done",
            "done is not None and name.number <= done + 1",
        ),
        (
            "a resolver registers at each address once",
            "spark.write.transaction_checker",
            "if known is not None and known.alive and now - at < _BEAT_S:",
            "if known is not None:",
        ),
        (
            "a resolver rolls back another half message than it was asked about",
            "spark.write.transaction_checker",
            "tran_state_table_offset=check.tran_state_table_offset,",
            "tran_state_table_offset=check.tran_state_table_offset + 1,",
        ),
        (
            "a resolver ends in an outage",
            "spark.write.transaction_checker",
            "self._pause(_BEAT_AGAIN_S)\n            except Exception:",
            "self.stop()\n            except Exception:",
        ),
        # --- a consumer group
        (
            "the position of a queue is that of its next pull",
            "client.groups.push_worker",
            "return min([self._in_flight.position, *self._deferred])",
            "return self._next",
        ),
        (
            "deferred messages are dropped",
            "client.groups.push_worker",
            "                self._deferred[message.queue_offset] = _Deferred(message)\n",
            "                pass\n",
        ),
        (
            "a queue ends at its first failed pull",
            "client.groups.push_worker",
            "                self.pause(_PAUSE_AFTER_ERROR_S)\n            except Exception as",
            "                self._stopped.set()\n            except Exception as",
        ),
        (
            "in order, a message that failed is passed over",
            "client.groups.push_delivery",
            "        while left and not worker.stopped:",
            "        while False:",
        ),
        (
            "a listener that fails has finished",
            "client.groups.push_delivery",
            "        if self._call(messages) is ConsumeResult.LATER:",
            "        if self._call(messages) is None:",
        ),
        (
            "the highest unfinished offset is committed",
            "planning.offset_tracker",
            "return min(self._sizes, default=self._next)",
            "return max(self._sizes, default=self._next)",
        ),
        # --- receivers
        (
            "a receiver's pull is committed when it is taken",
            "client.groups.push_worker",
            "taken += [] if run is None else",
            "taken += [] if True else",
        ),
        (
            "what a receiver that lags has read ahead is committed when it is taken",
            "client.groups.push_worker",
            "self._continue_at(chunk.until_offset, [(chunk.from_offset, len(records))])",
            "self._continue_at(chunk.until_offset)",
        ),
        (
            "what a receiver that lags misses is passed over",
            "client.groups.push_worker",
            "            pulls_in_flight=_PULLS_IN_FLIGHT,\n",
            "            pulls_in_flight=_PULLS_IN_FLIGHT,\n            fail_on_data_loss=False,\n",
        ),
        # --- direct streams
        (
            "a batch is planned again when it is asked for again",
            "dstream.direct.batch_plan",
            "        if planned is not None:\n            return planned.ranges",
            "        if False:\n            return planned.ranges",
        ),
        (
            "ranges that an earlier run planned are not read",
            "dstream.direct.batch_log",
            "if time_ms not in self._times:",
            "if True:",
        ),
        (
            "positions stay where they were when ranges are adopted",
            "dstream.direct.batch_plan",
            "                self.positions |= {found.queue: found.until_offset for found in ranges}\n",
            "",
        ),
        # --- direct streams
        (
            "a batch of another start is adopted",
            "dstream.direct.batch_plan",
            "if time_ms not in self._batches and follows:",
            "if time_ms not in self._batches:",
        ),
        (
            "positions move before a plan is complete",
            "dstream.direct.batch_plan",
            "            self.positions, self.witnesses, self.floor = until, witnesses, floor",
            "            self.positions, self.witnesses, self.floor = reach, witnesses, floor",
        ),
        # --- a consumer group
        (
            "a queue is unlocked while a call of the listener runs",
            "client.groups.push_lane",
            "(w.idle or not ordered)",
            "True",
        ),
        (
            "queues are begun that another member has locked",
            "client.groups.push_lane",
            "wanted = [queue for queue in wanted if answers.get(queue)]",
            "wanted = list(wanted) + 0 * [answers]",
        ),
        (
            "a member that was frozen commits with what it knew before",
            "client.groups.push_lane",
            "if self._ran.seconds > UNHEARD_S:",
            "if False:",
        ),
        # --- what needs two or more rare moments together
        (
            "a topic that comes back between two requests is missing",
            "planning.topics.missing_topic",
            "if topic in topics:",
            "if False:",
        ),
        (
            "pulls that a busy broker refused are forgotten",
            "client.read.range_pull",
            "                self._window.record_refusal(ask.offset)",
            """\
                if not pull_answer.is_busy(asks[ask]):
                    self._window.record_refusal(ask.offset)""",
        ),
        (
            "a slave that lacks messages is believed",
            "client.read.range_pull",
            "if not self._replica.at_master or missing_ms < self._options.missing_patience_ms:",
            "if missing_ms < 0:",
        ),
        (
            "a slave that may not be read hides what its master lacks",
            "client.read.replica_choice",
            "return (missed or not self.at_master) and self.master_is_known",
            "return missed and self.master_is_known",
        ),
        (
            "only a master tells that a topic is compacted",
            "client.read.pull_answer",
            "    if slave is not None:\n",
            "    if False:\n",
        ),
        (
            "a broker that does not answer is never left",
            "client.read.range_pull",
            "self._replica.refuse(self._channel.addr)",
            "pass",
        ),
        (
            "a slave's end is taken for the queue's",
            "spark.read.stream",
            (
                "            client.begins if self._frozen is None else client.min_offsets,"
                "  # a run that ends needs all\n            *(origin.offsets, ends.masters),"
            ),
            "            client.min_offsets,\n            *(origin.offsets, ends.readable),",
        ),
        (
            "a topic whose broker restarts is missing at once",
            "spark.write.sink_topics",
            "if not restart.expired and not (of_row",
            "if False and not (of_row",
        ),
        (
            "an answer that a task did not wait for counts as another's",
            "client.send.send_pipeline",
            "            flight.connection.abandon(flight.opaque)\n            raise",
            "            raise",
        ),
        # --- committed ranges
        (
            "a batch that is committed is committed again by the next driver",
            "spark.write.committed.range_commits",
            "            if committed:\n                return False\n",
            "",
        ),
        (
            "rows of a transactional write are read before its commit",
            "spark.read.partition",
            "decided=committed,",
            "decided=None,",
        ),
        (
            "the rows of one commit are passed over",
            "spark.read.committed",
            "rows.append(log.ranges(at.begin, at.read))",
            "rows.append(log.ranges(at.begin + (at.begin % 7 == 6), at.read))",
        ),
        (
            "commits that wait for the next micro-batch are in this one, too",
            "spark.read.committed",
            "rows.append(log.ranges(at.begin, at.read))",
            "rows.append(log.ranges(at.begin, at.known))",
        ),
        (
            "each commit of a batch is valid",
            "planning.commits.visible",
            "    return not any(\n        commit.since",
            "    return True or not any(\n        commit.since",
        ),
        (
            "rows of a commit come twice in a direct stream: where they lie, too",
            "dstream.direct.committed_rows",
            "sorted([*subtract([found], known), *listed(",
            "sorted([found, *listed(",
        ),
        (
            "a batch of a direct stream has the rows of its first commit only",
            "dstream.direct.committed_rows",
            "lambda: join(commit.ranges for found in logs for _, commit in self._commits(found)),",
            "lambda: join(commit.ranges for found in logs for _, commit in self._commits(found)[:1]),",
        ),
        (
            "a direct stream begins at the end of its commit topic",
            "dstream.direct.committed_rows",
            "client.min_offsets(begun) if begun",
            "client.max_offsets(begun) if begun",
        ),
        # --- staged rows
        (
            "staged rows that an earlier run appended are appended again",
            "spark.write.committed.staged_appends",
            "stored = self._settle(task.since) if task.turn.continues else {}",
            "stored = {}",
        ),
        (
            "staged rows whose answer is missing count as not stored",
            "spark.write.committed.staged_appends",
            "(left.refused if isinstance(error, _NOT_STORED) else left.unknown).append(slot)",
            "left.refused.append(slot)",
        ),
        (
            "staged rows are appended before their batch is committed",
            "spark.write.writer",
            "if not commits.commit(name, [report.ranges for report in reports]):",
            "if False:",
        ),
        (
            "messages of a queue that is hidden are passed over",
            "client.read.range_pull",
            "bound, fail_on_data_loss=self._options.fail_on_data_loss)",
            (
                "bound, fail_on_data_loss=self._options.fail_on_data_loss"
                " and verdict is not PullVerdict.QUEUE_GONE)"
            ),
        ),
        (
            "a queue that was read to its end counts as lost when it is removed",
            "planning.data_loss",
            "unread = max(0, max_offset - position)",
            "unread = max_offset + 0 * position",
        ),
        (
            "a route decides that a queue is lost",
            "offsets.hidden_queues",
            "served = client.served({q: known[q] for q, end in found.items() if end > known[q]}, group)",
            "served = frozenset[MessageQueue]()",
        ),
        (
            "a resolver polls connections that have ended",
            "spark.write.transaction_checker",
            "for connection, _ in self._beaten.values() if connection.alive]",
            "for connection, _ in self._beaten.values()]",
        ),
        # --- messages that do not decode
        (
            "a damaged record ends the read",
            "client.read.queue_reader",
            'if on_corrupt == "fail" or not error.breaks_layout:',
            "if True:",
        ),
        (
            "what a damaged record hides is passed over",
            "client.read.reread",
            "            mended += _one_by_one(client, queue, chunk, options)\n",
            "            mended += _hole(chunk.from_offset, chunk.until_offset)\n",
        ),
        (
            "a damaged record after a range stands for removed messages at the range's end",
            "client.read.reread",
            "    if offset >= chunk.until_offset:\n",
            "    offset = chunk.until_offset - 1\n    if False:\n",
        ),
        (
            "what a damaged record hides is not waited for",
            "client.read.reread",
            "pull_batch_size=1, fail_on_data_loss=False)",
            "pull_batch_size=1, fail_on_data_loss=False, stall_timeout_ms=0)",
        ),
        # --- which messages
        (
            "messages whose tags have the same hash are rows",
            "client.read.queue_reader",
            "return batch if pc.all(mask).as_py() else batch.filter(mask)",
            "return batch if pc.all(mask).as_py() else batch",
        ),
        (
            "what a filter leaves out counts as removed",
            "client.read.range_pull",
            "if not (self._filtered and pull_answer.scans_for_filter(response)) and not self._has",
            "if not self._has",
        ),
        (
            "an answer without a message counts up to the end of its range",
            "client.read.range_pull",
            "self._window.record_answer(ask.offset, header.next_begin_offset, messages=0, payload=payload)",
            "self._window.record_answer(ask.offset, self.offsets.until_offset, messages=0, payload=payload)",
        ),
        (
            "a start by time leaves out its first message",
            "planning.offset_resolution",
            "offsets[queue] = answers.timestamps[queue]\n",
            "offsets[queue] = min(answers.timestamps[queue] + 1, answers.max_offsets.get(queue, 10**9))\n",
        ),
        (
            "a broker that was down at the start is read from that moment, not from the time that was given",
            "planning.offset_resolution",
            "return AtTimestamp(min(start_time_ms, _moment(policy, start_time_ms)))",
            "return AtTimestamp(max(start_time_ms, _moment(policy, start_time_ms)))",
        ),
        (
            "brokers search a static topic's queue that has moved",
            "client.requests",
            "exact = response.command.version >= FIRST_EXACT_SEARCH_VERSION and not queue.logical",
            "exact = response.command.version >= FIRST_EXACT_SEARCH_VERSION",
        ),
        # --- by store time
        (
            "a queue is read past the oldest unread message of another one",
            "planning.alignment",
            "aligned[queue] = min(end, max(least, held))",
            "aligned[queue] = max(min(end, max(least, held)), end)",
        ),
        (
            "all queues count as read up to now though messages wait",
            "planning.alignment",
            "return max(1, previous_ms, min([seen_ms, *tail_times_ms]))",
            "return max(1, previous_ms, seen_ms)",
        ),
        (
            "a message that a slave lacks is passed by the aligned time",
            "spark.read.aligned_column",
            "if unread.keys() != wanted.keys():",
            "if False:",
        ),
        (
            "all queues count as read though a broker is away",
            "spark.read.stream",
            "return not ends.held and not self._absences.waited_for(missed)",
            "return True",
        ),
        (
            "queues that wait for older ones keep their share of the limit",
            "spark.read.admission",
            "if wider == aligned:",
            "if True:",
        ),
        # --- a write that is started again with other options
        (
            "write ids depend on how many rows a send has",
            "spark.write.write_task",
            "content_ids(rows, self._scope.job.encode(),",
            'content_ids(rows, f"{self._scope.job}{self._options.batch_size}".encode(),',
        ),
        (
            "a route from before a broker registered says that it had no queues",
            "offsets.queue_lookup",
            "    client.invalidate_all()",
            "    pass",
        ),
        (
            "queues without an answer before a run to the end are created later",
            "spark.read.stream",
            "for queue in (*found, *self._asked_for) if",
            "for queue in found if",
        ),
        (
            "a broker that was down at the start is read from where today's options say",
            "spark.read.stream",
            "origin.start or self._policy,",
            "self._policy,",
        ),
        (
            "a topic is missing before its brokers must have registered at a name server that restarted",
            "spark.write.sink_topics",
            "RESTART_MS: Final = 35_000",
            "RESTART_MS: Final = 15_000",
        ),
    )
)
