import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sends messages with {@code DefaultMQProducer}: batches, asynchronously, to the queues in turn. */
public final class SendLoop {
    private SendLoop() {}

    /** Arguments: name servers, topic, messages, body bytes, batch bytes, sends in flight. */
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        long messages = Long.parseLong(args[2]);
        int bodyBytes = Integer.parseInt(args[3]);
        int batch = Math.max(1, Integer.parseInt(args[4]) / (bodyBytes + 80));
        int inFlight = Integer.parseInt(args[5]);
        var producer = new DefaultMQProducer("bench-java-send");
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic);
        Rounds.serve(() -> send(producer, topic, queues, messages, bodyBytes, batch, inFlight));
        producer.shutdown();
    }

    private static Rounds.Done send(
            DefaultMQProducer producer, String topic, List<MessageQueue> queues, long messages, int bodyBytes,
            int batch, int inFlight) throws Exception {
        var room = new Semaphore(inFlight);
        var failure = new AtomicReference<Throwable>();
        long bytes = 0;
        int turn = 0;
        for (long sent = 0; sent < messages && failure.get() == null; sent += batch) {
            var list = new ArrayList<Message>(batch);
            for (long i = sent; i < Math.min(messages, sent + batch); i++) {
                byte[] body = body(i, bodyBytes);
                bytes += body.length;
                list.add(new Message(topic, body));
            }
            room.acquire();
            producer.send(list, queues.get(turn++ % queues.size()), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    if (result.getSendStatus() != SendStatus.SEND_OK) {
                        failure.set(new IllegalStateException(result.toString()));
                    }
                    room.release();
                }

                @Override
                public void onException(Throwable cause) {
                    failure.set(cause);
                    room.release();
                }
            });
        }
        room.acquire(inFlight);
        if (failure.get() != null) {
            throw new IllegalStateException("a batch was not sent", failure.get());
        }
        return new Rounds.Done(messages, bytes);
    }

    /** The same bodies as the Spark contenders send: a number, filled up. */
    private static byte[] body(long number, int bytes) {
        byte[] head = Long.toString(number).getBytes(StandardCharsets.ISO_8859_1);
        byte[] body = new byte[bytes];
        java.util.Arrays.fill(body, (byte) '.');
        System.arraycopy(head, 0, body, 0, head.length);
        return body;
    }
}
