import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** A Java member of a consumer group: prints a line a message, and leaves when its standard input ends. */
public final class GroupMember {
    private GroupMember() {}

    /** Arguments: name servers, group, topic, and {@code average} or {@code consistentHash}. */
    public static void main(String[] args) throws Exception {
        var consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setPersistConsumerOffsetInterval(200);
        consumer.setMqClientApiTimeout(60_000); // start() asks once, and a busy machine may take more than 3 s
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAllocateMessageQueueStrategy(
                args[3].equals("average")
                        ? new AllocateMessageQueueAveragely()
                        : new AllocateMessageQueueConsistentHash());
        consumer.subscribe(args[2], "*");
        MessageListenerConcurrently listener = (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                System.out.println("|" + message.getQueueId() + "\t" + message.getQueueOffset() + "\t" + body);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
        consumer.registerMessageListener(listener);
        consumer.start();
        System.out.println("|started");
        while (System.in.read() >= 0) {}
        consumer.shutdown();
    }
}
