import java.util.Collection;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Reads a topic with {@code DefaultLitePullConsumer}, 32 messages a pull, everything else as it comes. */
public final class LitePullLoop {
    private static final int BATCH = 32;

    private LitePullLoop() {}

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        var offsets = new DefaultMQPullConsumer("bench-java-offsets");
        offsets.setNamesrvAddr(args[0]);
        offsets.start();
        var consumer = new DefaultLitePullConsumer("bench-java-lite");
        consumer.setNamesrvAddr(args[0]);
        consumer.setPullBatchSize(BATCH);
        consumer.setAutoCommit(false);
        consumer.start();
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
        consumer.assign(queues);
        long total = 0;
        for (MessageQueue queue : queues) {
            total += offsets.maxOffset(queue) - offsets.minOffset(queue);
        }
        long expected = total;
        Rounds.serve(() -> read(consumer, queues, expected));
        consumer.shutdown();
        offsets.shutdown();
    }

    private static Rounds.Done read(DefaultLitePullConsumer consumer, Collection<MessageQueue> queues, long expected)
            throws Exception {
        for (MessageQueue queue : queues) {
            consumer.seekToBegin(queue);
        }
        long messages = 0;
        long bytes = 0;
        while (messages < expected) {
            List<MessageExt> polled = consumer.poll(1000);
            for (MessageExt message : polled) {
                messages++;
                bytes += message.getBody().length;
            }
        }
        return new Rounds.Done(messages, bytes);
    }
}
