import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What the Java client makes of messages: reads a topic, or sends one message of each kind; a line a fact. */
public final class SendAndRead {
    private static final int PATIENCE_MS = 60_000;

    private SendAndRead() {}

    /** Arguments: {@code read} or {@code send}, name servers, topic, and how many to read. */
    public static void main(String[] args) throws Exception {
        try {
            if (args[0].equals("read")) {
                read(args[1], args[2], Integer.parseInt(args[3]));
            } else {
                send(args[1], args[2]);
            }
        } catch (Exception failed) {
            failed.printStackTrace();
            System.exit(1); // the client's threads would keep the program alive
        }
    }

    private static void read(String nameServers, String topic, int count) throws Exception {
        var consumer = new DefaultMQPullConsumer("java-reader");
        consumer.setNamesrvAddr(nameServers);
        consumer.setMqClientApiTimeout(PATIENCE_MS);
        consumer.setConsumerPullTimeoutMillis(PATIENCE_MS);
        consumer.start();
        var next = new TreeMap<MessageQueue, Long>();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            next.put(queue, consumer.minOffset(queue));
        }
        long end = System.currentTimeMillis() + PATIENCE_MS;
        int found = 0;
        while (found < count && System.currentTimeMillis() < end) {
            for (Map.Entry<MessageQueue, Long> position : next.entrySet()) {
                PullResult result = consumer.pull(position.getKey(), "*", position.getValue(), 32);
                position.setValue(result.getNextBeginOffset());
                if (result.getPullStatus() == PullStatus.FOUND) {
                    for (MessageExt message : result.getMsgFoundList()) {
                        print(message);
                        found++;
                    }
                }
            }
        }
        consumer.shutdown();
    }

    private static void print(MessageExt message) {
        var properties = new TreeMap<>(message.getProperties());
        line(
                new String(message.getBody(), StandardCharsets.UTF_8),
                message.getTags(),
                message.getKeys(),
                message.getFlag(),
                message.getQueueId(),
                message.getStoreSize(),
                message.getMsgId(),
                message.getStoreTimestamp() - message.getBornTimestamp(),
                properties.getOrDefault("region", ""),
                properties.getOrDefault("__SHARDINGKEY", ""));
    }

    private static void send(String nameServers, String topic) throws Exception {
        var producer = new DefaultMQProducer("java-sender");
        producer.setNamesrvAddr(nameServers);
        producer.setMqClientApiTimeout(PATIENCE_MS);
        producer.setSendMsgTimeout(PATIENCE_MS);
        producer.start();
        var plain = new Message(topic, "new", "k1 k2", 9, "plain größe".getBytes(StandardCharsets.UTF_8), true);
        plain.putUserProperty("region", "eu");
        sent(producer.send(plain), "plain");
        sent(producer.send(new Message(topic, "z".repeat(10_000).getBytes(StandardCharsets.UTF_8))), "compressed");
        var delayed = new Message(topic, "delayed".getBytes(StandardCharsets.UTF_8));
        delayed.setDelayTimeLevel(1);
        producer.send(delayed);
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            batch.add(new Message(topic, "tag" + i, "key" + i, ("batch" + i).getBytes(StandardCharsets.UTF_8)));
        }
        sent(producer.send(batch), "batch");
        for (int i = 0; i < 8; i++) {
            var keyed = new Message(topic, ("keyed" + i).getBytes(StandardCharsets.UTF_8));
            sent(producer.send(keyed, new SelectMessageQueueByHash(), "customer-" + i), "customer-" + i);
        }
        producer.shutdown();
    }

    private static void sent(SendResult result, String what) {
        line(what, result.getMessageQueue().getQueueId(), result.getMsgId());
    }

    private static void line(Object... facts) {
        var texts = new ArrayList<String>();
        for (Object fact : facts) {
            texts.add(fact == null ? "" : fact.toString());
        }
        System.out.println("|" + String.join("\t", texts));
    }
}
