import java.util.ArrayList;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Reads a topic with {@code DefaultMQPullConsumer}: a thread a queue, 32 messages a pull. */
public final class PullLoop {
    private static final int BATCH = 32;

    private PullLoop() {}

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        var consumer = new DefaultMQPullConsumer("bench-java-pull");
        consumer.setNamesrvAddr(args[0]);
        consumer.start();
        var queues = new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic));
        var threads = Executors.newFixedThreadPool(queues.size());
        Rounds.serve(() -> {
            var readers = new ArrayList<Callable<Rounds.Done>>();
            for (MessageQueue queue : queues) {
                readers.add(() -> read(consumer, queue));
            }
            long messages = 0;
            long bytes = 0;
            for (var reader : threads.invokeAll(readers)) {
                messages += reader.get().messages();
                bytes += reader.get().bytes();
            }
            return new Rounds.Done(messages, bytes);
        });
        threads.shutdown();
        consumer.shutdown();
    }

    private static Rounds.Done read(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        long offset = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        long messages = 0;
        long bytes = 0;
        while (offset < end) {
            PullResult result = consumer.pull(queue, "*", offset, BATCH);
            if (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    messages++;
                    bytes += message.getBody().length;
                }
            }
            offset = result.getNextBeginOffset();
        }
        return new Rounds.Done(messages, bytes);
    }
}
