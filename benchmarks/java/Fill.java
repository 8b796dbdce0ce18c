import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.SplittableRandom;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.ResponseCode;

/**
 * Fills a topic with orders: JSON bodies of one size, a key, a tag and one user property each; the same
 * content for the same arguments. Batches, or single compressed messages (Java compresses no batches).
 */
public final class Fill {
    private static final String[] TAGS = {"created", "paid", "shipped", "cancelled"};
    private static final int BATCH_BYTES = 256 * 1024;
    private static final int SINGLES_IN_FLIGHT = 64;
    private static final int ATTEMPTS = 200;

    private Fill() {}

    /** Arguments: name servers, topic, messages, body bytes, and {@code none} or the compression of single messages. */
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        long messages = Long.parseLong(args[2]);
        int bodyBytes = Integer.parseInt(args[3]);
        boolean compressed = !args[4].equals("none");
        var producer = new DefaultMQProducer("bench-fill");
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(60_000);
        producer.setCompressMsgBodyOverHowmuch(compressed ? 64 : Integer.MAX_VALUE);
        if (compressed) {
            producer.setCompressType(CompressionType.of(args[4].toUpperCase(Locale.ROOT)));
        }
        producer.start();
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic);
        var threads = Executors.newFixedThreadPool(Math.min(4, queues.size()));
        var fillers = new ArrayList<Callable<Void>>();
        for (int i = 0; i < queues.size(); i++) {
            int number = i;
            long share = messages / queues.size() + (i < messages % queues.size() ? 1 : 0);
            fillers.add(() -> {
                var orders = new Orders(topic, number, bodyBytes);
                if (compressed) {
                    sendSingles(producer, queues.get(number), orders, share);
                } else {
                    sendBatches(producer, queues.get(number), orders, share, Math.max(1, BATCH_BYTES / (bodyBytes + 100)));
                }
                return null;
            });
        }
        try {
            for (var filler : threads.invokeAll(fillers)) {
                filler.get();
            }
        } finally {
            threads.shutdown();
            producer.shutdown();
        }
    }

    private static void sendBatches(DefaultMQProducer producer, MessageQueue queue, Orders orders, long count, int size)
            throws Exception {
        for (long sent = 0; sent < count; sent += size) {
            var batch = new ArrayList<Message>(size);
            for (long i = sent; i < Math.min(count, sent + size); i++) {
                batch.add(orders.next());
            }
            send(producer, batch, queue);
        }
    }

    /** Sends until the broker is not too busy to take it: a refused batch was not stored. */
    private static void send(DefaultMQProducer producer, List<Message> batch, MessageQueue queue) throws Exception {
        for (int attempt = 1; ; attempt++) {
            try {
                producer.send(batch, queue);
                return;
            } catch (MQBrokerException refused) {
                if (refused.getResponseCode() != ResponseCode.SYSTEM_BUSY || attempt == ATTEMPTS) {
                    throw refused;
                }
                Thread.sleep(50);
            }
        }
    }

    private static void sendSingles(DefaultMQProducer producer, MessageQueue queue, Orders orders, long count)
            throws Exception {
        var room = new Semaphore(SINGLES_IN_FLIGHT);
        var failure = new AtomicReference<Throwable>();
        for (long i = 0; i < count && failure.get() == null; i++) {
            room.acquire();
            producer.send(orders.next(), queue, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    room.release();
                }

                @Override
                public void onException(Throwable cause) {
                    failure.set(cause);
                    room.release();
                }
            });
        }
        room.acquire(SINGLES_IN_FLIGHT);
        if (failure.get() != null) {
            throw new IllegalStateException("a message was not sent", failure.get());
        }
    }

    /** The orders of one queue. */
    private static final class Orders {
        private static final int LONGEST_LINE = 37;
        private static final String END = "], \"note\": \"\"}";

        private final String topic;
        private final int queue;
        private final int bodyBytes;
        private final SplittableRandom random;
        private long number;

        Orders(String topic, int queue, int bodyBytes) {
            this.topic = topic;
            this.queue = queue;
            this.bodyBytes = bodyBytes;
            this.random = new SplittableRandom(queue);
        }

        Message next() {
            String key = "order-" + queue + "-" + number++;
            String tag = random.nextInt(100) == 0 ? "rare" : TAGS[random.nextInt(TAGS.length)];
            var body = new StringBuilder(bodyBytes);
            body.append("{\"orderId\": \"").append(key)
                    .append("\", \"price\": ").append(random.nextInt(100_000) / 100.0)
                    .append(", \"lines\": [");
            String separator = "";
            while (body.length() + LONGEST_LINE + END.length() <= bodyBytes) {
                body.append(separator).append("{\"sku\": \"").append(Integer.toHexString(random.nextInt()))
                        .append("\", \"quantity\": ").append(random.nextInt(9) + 1).append('}');
                separator = ", ";
            }
            String padding = ".".repeat(Math.max(0, bodyBytes - body.length() - END.length()));
            body.append(END).insert(body.length() - 2, padding);
            var message = new Message(topic, tag, key, body.toString().getBytes(StandardCharsets.ISO_8859_1));
            message.putUserProperty("region", "region-" + random.nextInt(50));
            return message;
        }
    }
}
