"""The parts of a life: a cluster, writers and readers, whose every accident follows from one number."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from tests.simulation.alignment import Alignment
from tests.simulation.batch_job import BatchJob
from tests.simulation.cluster import Cluster
from tests.simulation.damage import DAMAGES, UNTIMED
from tests.simulation.dead_letters import DEAD_LETTERS
from tests.simulation.direct import DirectStream
from tests.simulation.faults import Fault, happen
from tests.simulation.group import Group
from tests.simulation.half_checks import HalfChecks
from tests.simulation.history import Place
from tests.simulation.judges import unexpected
from tests.simulation.narrow import NarrowReader
from tests.simulation.network import Network
from tests.simulation.plan import GROUP, Plan
from tests.simulation.query import Query
from tests.simulation.scheduler import EPOCH_MS, Scheduler
from tests.simulation.sink import Sink
from tests.simulation.stage import Stage
from tests.simulation.wanted import TAGS
from tests.simulation.writer import Writer

from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.model.names import commit_topic_of, staging_topic_of
from pyspark_rocketmq.options import ClientOptions, parse_options
from pyspark_rocketmq.record.properties import PROPERTY_TAGS, PROPERTY_WRITE_ID

__all__ = ["TOPIC", "World"]

TOPIC: Final = "orders"
_CLIENT_OPTIONS: Final = ("requestTimeoutMs", "connectTimeoutMs", "routeRefreshMs")
_SHARED_OPTIONS: Final = ("isolation", "onCorrupt")
"""Those of a query that a reader in its place, and a batch job, have as well."""
_DAMAGED: Final = 0.1
_OUTAGE_TIMEOUT: Final = "600s"
"""Longer than every fault."""


class World:
    """The parts of a life, put together."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.chance = random.Random(plan.seed ^ 0x5EED)
        self.scheduler = Scheduler()
        self.stage = Stage(
            Network(
                *(self.scheduler, self._own_chance(), plan.habits),
                ids=random.Random(f"{plan.seed} ids"),
            ),
            plan.kills,
            None if plan.accidents is None else frozenset(plan.accidents),
        )
        self.history = self.stage.history
        homes = [f"broker-{'abcdef'[number]}" for number in range(plan.brokers)]
        self.cluster = Cluster(
            self.stage.network,
            brokers=[*homes, *(f"bystander-{number}" for number in range(plan.bystanders))],
            name_servers=plan.name_servers,
            slaves=plan.slaves,
            slave_readable=plan.slave_readable,
            proxies=plan.proxies,
            limits=plan.limits,
            clocks_ms=plan.clocks_ms,
            on_append=self._store,
            on_commit=self._commit,
            damage=self._damage,
        )
        self._damages = plan.own_chance("damages")
        if plan.static:
            self.cluster.create_static_topic(TOPIC, plan.queues)
        else:
            attributes = {"cleanup.policy": "COMPACTION"} if plan.compacted else None
            self.cluster.create_topic(TOPIC, plan.queues, brokers=homes, attributes=attributes)
        if plan.sinks:
            self._commit_batches(homes)
        if plan.sink is not None and plan.sink.flawed:
            self.cluster.create_topic(DEAD_LETTERS, 1, brokers=homes)
        client = {name: value for name, value in plan.options.items() if name in _CLIENT_OPTIONS}
        client["nameServer"] = self.cluster.name_server
        self.writers: list[Writer | Sink] = [
            Writer(
                f"writer-{number}",
                self.stage,
                parse_options(ClientOptions, client, environ={}),
                TOPIC,
                self._own_chance(),
                messages=messages,
                pause_s=pause_s,
                ordered=ordered,
                body_bytes=plan.body_bytes,
                tags=TAGS if plan.wanted.tags else (None,),
            )
            for number, (messages, pause_s, ordered) in enumerate(plan.writers)
        ]
        if plan.sink is not None:
            options = {**client, "topic": TOPIC, "outageTimeout": _OUTAGE_TIMEOUT, **plan.sink.options}
            self.writers += [
                Sink(
                    *(self.stage, plan.sink, options, self._own_chance()),
                    body_bytes=plan.body_bytes,
                    name=f"sink{number or ''}",
                    resolved=bool(plan.check_s),
                )
                for number in range(max(1, plan.sinks))
            ]
        self.history.proxied = plan.proxies > 0
        self.history.hidden = plan.proxies > 0 or plan.bystanders > 0
        self.stage.network.on_idle = self.history.idle.append
        self.history.now = lambda: self.scheduler.now
        self.reader = self._reader(client)
        self.job = self._job(client) if plan.job else None
        self.narrow = self._narrow(client) if plan.narrow else None
        self.checks = self._checks() if plan.check_s else None
        self.last_fault_s = plan.last_fault_s(default=0.0)
        self.heals_at_s = max((fault.at_s + fault.lasts_s for fault in plan.faults), default=0.0) + 1.0
        self._begin()

    def _commit_batches(self, homes: Sequence[str]) -> None:
        """Prepare the topics of writes that commit their batches."""
        written = staging_topic_of(TOPIC, None) if self.plan.staged else TOPIC
        if self.plan.staged:
            self.cluster.create_topic(written, self.plan.queues, brokers=homes)
            self.history.watch = self._check_decided
        self.cluster.create_topic(commit_topic_of(written, None), 1, brokers=homes[:1])
        self.history.ranged, self.history.transactional = not self.plan.staged, True

    def _check_decided(self, body: bytes) -> None:
        """No staged row may be in its topic before its batch is committed."""
        if (batch := body.decode().partition(".")[0]) not in self.history.deciding:
            self.history.undecided.append(f"{body!r} is visible, and {batch} is not committed")
        for sink in self.writers:
            if isinstance(sink, Sink) and batch.startswith(f"{sink.program.name}-"):
                sink.appended(batch)

    def _reader(self, client: Mapping[str, str]) -> Query | Group | DirectStream:
        plan, chance = self.plan, self._own_chance()
        if plan.group is not None:
            options = parse_options(ClientOptions, client, environ={})
            group = Group(
                *(self.stage, plan.group, GROUP, TOPIC, options, chance),
                selector=plan.wanted.selector,
                committed=self._committed,
                lost_locks=self.cluster.lost_locks,
            )
            self.cluster.watchers.append(group.commits.executed)
            return group
        if plan.direct is not None:
            shared = {name: value for name, value in plan.options.items() if name in _SHARED_OPTIONS}
            return DirectStream(
                *(self.stage, plan.direct, GROUP, TOPIC),
                {**client, **shared, **plan.wanted.filter},
                chance,
                start=plan.wanted.start,
                fail_on_data_loss=plan.options.get("failOnDataLoss") != "false",
            )
        return Query(
            self.stage,
            {"nameServer": self.cluster.name_server, "topic": TOPIC, **plan.options, **plan.wanted.options},
            chance,
            available_now=plan.available_now,
            trigger_s=plan.trigger_s,
            skew_ms=plan.skew_ms,
            changes=plan.changes,
            alignment=Alignment(self.history, ahead_ms=max(0, plan.skew_ms - plan.slowest_ms)),
        )

    def _job(self, client: Mapping[str, str]) -> BatchJob:
        fail = self.plan.options.get("failOnDataLoss", "true")
        shared = {name: value for name, value in self.plan.options.items() if name in _SHARED_OPTIONS}
        options = {**client, "topic": TOPIC, "failOnDataLoss": fail, **shared, **self.plan.wanted.options}
        if self.history.ranged:
            options["isolation"] = "read_committed"
        showing, homes = partial(self.cluster.showing, TOPIC), partial(self.cluster.homes, TOPIC)
        return BatchJob(
            *(self.stage, options, self._own_chance()), showing=showing, homes=homes, ranges=self._ranges
        )

    def _narrow(self, client: Mapping[str, str]) -> NarrowReader:
        reader = NarrowReader(
            self.stage,
            parse_options(ClientOptions, client, environ={}),
            self._own_chance(),
            ranges=self._ranges,
            body_bytes=self.plan.body_bytes,
        )
        self.cluster.watchers.append(reader.executed)
        return reader

    def _checks(self) -> HalfChecks:
        (sink,) = (each for each in self.writers if isinstance(each, Sink))
        return HalfChecks(
            *(self.stage, self.cluster, self.plan.check_s, self._own_chance()), is_finished=sink.is_finished
        )

    def _ranges(self) -> list[OffsetRange]:
        """Return all that brokers have."""
        cluster, queues = self.cluster, self.cluster.queues(TOPIC)
        return [OffsetRange(each, cluster.min_offset(each), cluster.max_offset(each)) for each in queues]

    def _commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        if group == GROUP and queue.topic == TOPIC:
            if self.plan.static:
                queue, begin = self._parts()[queue.broker_name, queue.queue_id]
                offset += begin
            self.reader.check_commit(queue, offset)

    def _store(self, place: Place, body: bytes, properties: Mapping[str, str], stored_ms: int) -> None:
        """Record a message; of a transactional write, it is one only if it is committed."""
        write_id = properties.get(PROPERTY_WRITE_ID)
        if place[0] == DEAD_LETTERS:
            self.history.dead_letters.store(body, properties)
        elif not self.plan.wanted.takes(properties.get(PROPERTY_TAGS), stored_ms):
            self.history.leave_out(place, body)
        elif not self.plan.sinks:
            self.history.store(place, body, write_id, stored_ms)
        elif self.history.ranged and place[0] == TOPIC and body.startswith(b"sink"):
            self.history.marked[place] = body
        elif place[0] == TOPIC:
            self.history.store(place, body, write_id, stored_ms)

    def _damage(self, place: Place) -> Callable[[bytes], bytes] | None:
        """Return what is done to a message's record, if it is to be damaged."""
        well = not self.plan.on_corrupt or self.stage.healed or self._damages.random() > _DAMAGED
        if well or self.history.place(*place) not in self.history.stored:
            return None
        damage = self._damages.choice(DAMAGES)
        self.history.spoil(place, has_row=self.plan.on_corrupt == "null", has_time=damage not in UNTIMED)
        self.history.did[f"message that does not decode: {self.plan.on_corrupt}"] += 1
        return damage

    def _own_chance(self) -> random.Random:
        """A source of its own for each part: what one draws does not change what others do."""
        return random.Random(self.chance.getrandbits(64))

    def _committed(self) -> list[tuple[MessageQueue, int]]:
        return [
            (queue, offset)
            for queue in self.cluster.queues(TOPIC)
            if (offset := self.cluster.committed(GROUP, queue)) is not None
        ]

    def _begin(self) -> None:
        """Plan everything that happens by itself."""
        self.cluster.start()
        processes = (
            *("query", "query-executor-0", "query-executor-1", "sink-executor-0", "sink-executor-1"),
            *(
                "batch",
                "batch-executor-0",
                "batch-executor-1",
                "stream",
                "stream-executor-0",
                "stream-executor-1",
            ),
            *(("narrow",) if self.plan.narrow else ()),
            *(("resolver",) if self.plan.check_s else ()),
            *(f"writer-{number}" for number in range(len(self.writers))),
            *(f"member-{number}" for number in range(self.plan.group.slots if self.plan.group else 0)),
        )
        for fault in self.plan.faults:
            self.scheduler.at(fault.at_s, lambda fault=fault: self._happen(fault, processes))
        self.scheduler.at(self.heals_at_s, self._heal)
        for writer in self.writers:
            self.scheduler.after(self.chance.uniform(0.5, 1.5), writer.start)
        self.scheduler.after(max(self._starts_s, self.chance.uniform(0.0, 3.0)), self.reader.start)
        if self.job is not None:
            self.scheduler.after(max(self._starts_s, 2.0), self.job.start)
        if self.narrow is not None:
            self.scheduler.after(3.0, self.narrow.start)

    @property
    def _starts_s(self) -> float:
        """The moment at which every broker's clock shows the time at which the reader is to begin."""
        since_ms = self.plan.wanted.since_ms
        return (since_ms - EPOCH_MS - self.plan.slowest_ms) / 1000 if since_ms else 0.0

    def _happen(self, fault: Fault, processes: tuple[str, ...]) -> None:
        self.stage.note(str(fault))
        happen(
            fault,
            self.cluster,
            self.stage.network,
            self.history,
            topic=TOPIC,
            processes=processes,
            finished=lambda: self.reader.finished,
            deletes=self.plan.lossy or self.plan.strict,
            jump=self.reader.jump,
        )

    def _heal(self) -> None:
        if not self.stage.healed:
            self.stage.heal()
            self.cluster.restore()

    def clean_up(self) -> None:
        """Leave nothing on the disk."""
        for writer in self.writers:
            if isinstance(writer, Sink):
                writer.clean_up()

    def done(self) -> bool:
        """Whether everything was written and read. Faults end early where nothing is left to disturb."""
        if self.plan.strict and any(error.startswith("DataLoss") for error in self.history.errors):
            return True  # it has to end so
        if unexpected(self.history):
            return True  # and nothing else counts
        if not self.stage.healed:
            rests = self.scheduler.now > self.last_fault_s and all(one.rests for one in self.writers)
            if rests and self._is_read():
                self._heal()
            return False
        if self.job is not None and not self.job.done:
            return False
        if self.checks is not None and self.checks.open:
            return False
        return all(writer.done for writer in self.writers) and self._is_read()

    def _is_read(self) -> bool:
        history = self.history
        if history.ranged and not self._came() <= history.came:
            return False
        if self.plan.retires or history.generations:
            unread = history.stored.keys() - history.expired - history.read
            away = self.cluster.retired
            if any(place[1] not in away and place[:3] not in history.generations for place in unread):
                return False  # none of these is out of reach
            return not unread or unread <= self.out_of_reach()
        if not history.ranged and len(history.read) < len(history.stored) - len(history.expired):
            return False
        return self.logical_places(history.stored).keys() - history.expired <= history.read

    def _came(self) -> set[bytes]:
        """Return the rows of transactional writes that were acknowledged."""
        return {
            b"%s:%d" % (lane.encode(), number)
            for lane, numbers in self.history.acknowledged.items()
            for number in numbers
            if lane.startswith("sink")
        }

    def reached(self) -> Counter[str]:
        """Return the states that this life has reached."""
        history, direct = self.history, self.plan.direct is not None
        of_commits = sum(body.startswith(b"sink") for body in history.came) if history.ranged else 0
        reached = Counter(
            {
                "dead letter": len(history.dead_letters.stored),
                "life over TLS": self.plan.habits.tls,
                "message stored twice": len(history.stored) - len(set(history.stored.values())),
                "messages before the start are left out": bool(self.plan.wanted.since_ms)
                and len(history.unwanted),
                "messages with other tags are left out": bool(self.plan.wanted.tags)
                and len(history.unwanted),
                "offset committed": len(self._committed()),
                "query ended by lost messages": sum(e.startswith("DataLoss") for e in history.errors),
                "query went on without lost messages": self.plan.lossy
                and bool(history.expired - history.read),
                "rows of commits are read by a direct stream": of_commits * direct,
                "rows of commits are read by a query": of_commits * (not direct),
                "staged rows are read": len(history.read) * self.plan.staged,
            }
        )
        for server in self.cluster.all_servers:
            reached.update(server.happened)
        return reached

    def _parts(self) -> dict[tuple[str, int], tuple[MessageQueue, int]]:
        """Return, by broker and queue number there, the static topic's queue and the part's first offset."""
        return {
            (part.broker, part.queue_id): (queue, part.begin)
            for queue in self.cluster.queues(TOPIC)
            for part in self.cluster.parts(queue)
        }

    def out_of_reach(self) -> set[Place]:
        """Return the messages of masters that are gone for good, unless a batch was planned with them.

        And those of queues that were created again and have grown to exactly the query's position: what is in
        them is compared with what was read as soon as one more comes.
        """
        planned = self.reader.planned
        away = {
            place
            for place in self.history.stored
            if place[1] in self.cluster.retired and place[3] >= planned.get(MessageQueue(*place[:3]), 0)
        }
        for key in self.history.generations:
            queue = MessageQueue(*key)
            if planned.get(queue) == self.cluster.max_offset(queue):
                away |= {place for place in self.history.stored if place[:3] == key}
        return away

    def logical_places(self, stored: Mapping[Place, bytes]) -> Mapping[Place, bytes]:
        """Return stored messages by their places as rows have them."""
        if not self.plan.static:
            return stored
        parts, found = self._parts(), {}
        for (topic, broker, queue_id, offset), body in stored.items():
            queue, begin = parts[broker, queue_id]
            found[topic, queue.broker_name, queue.queue_id, begin + offset] = body
        return found
