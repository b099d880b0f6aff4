package firearrow.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sends without a pause while the broker is killed and started again, then looks for what was acknowledged. */
final class Enduring {
    private static final int THREADS = 8;
    private static final int REPORT_EVERY_MS = 20;

    private Enduring() {
    }

    /** Sends from several threads until a line comes on standard input; says how many are acknowledged. */
    static Map<String, Object> send(Context context) throws Exception {
        AtomicBoolean stop = new AtomicBoolean();
        AtomicInteger numbers = new AtomicInteger();
        AtomicInteger failures = new AtomicInteger();
        DefaultMQProducer producer = context.producer();
        // A message that is sent again by the client could be stored twice, and that would prove nothing.
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(1000);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
            Thread thread = new Thread(() -> {
                while (!stop.get()) {
                    if (!sendOne(context, producer, numbers.incrementAndGet())) {
                        failures.incrementAndGet();
                    }
                }
            });
            thread.start();
            threads.add(thread);
        }
        int reported = -1;
        while (System.in.available() == 0) {
            int acknowledged = context.sent.size();
            if (acknowledged != reported) {
                System.out.println("acknowledged " + acknowledged);
                reported = acknowledged;
            }
            Thread.sleep(REPORT_EVERY_MS);
        }
        stop.set(true);
        for (Thread thread : threads) {
            thread.join();
        }
        return Map.of("acknowledged", context.sent.size(), "failed", failures.get());
    }

    private static boolean sendOne(Context context, DefaultMQProducer producer, int number) {
        String body = "endured-" + number;
        try {
            SendResult result = producer.send(
                new Message(context.topic, body.getBytes(StandardCharsets.UTF_8)));
            if (result.getSendStatus() == SendStatus.SEND_OK) {
                context.sent.put(body, "");
                return true;
            }
        } catch (Exception e) {
            try {
                Thread.sleep(10);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }
        return false;
    }

    /** Reads every queue to its end: what was acknowledged must be there, and nothing twice. */
    @SuppressWarnings("deprecation")
    static Map<String, Object> find(Context context) throws Exception {
        Map<String, Integer> found = new TreeMap<>();
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(context.group + "-finder");
        consumer.setNamesrvAddr(context.nameserver);
        consumer.start();
        try {
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(context.topic)) {
                long next = consumer.minOffset(queue);
                long max = consumer.maxOffset(queue);
                while (next < max) {
                    PullResult result = consumer.pull(queue, "*", next, 32);
                    next = result.getNextBeginOffset();
                    if (result.getPullStatus() == PullStatus.FOUND) {
                        for (MessageExt message : result.getMsgFoundList()) {
                            found.merge(new String(message.getBody(), StandardCharsets.UTF_8), 1, Integer::sum);
                        }
                    }
                }
            }
        } finally {
            consumer.shutdown();
        }
        Set<String> missing = new TreeSet<>(context.sent.keySet());
        missing.removeAll(found.keySet());
        Set<String> repeated = new TreeSet<>();
        found.forEach((body, times) -> {
            if (times > 1) {
                repeated.add(body);
            }
        });
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("found", found.size());
        facts.put("missing", missing);
        facts.put("unexpected", repeated);
        return facts;
    }
}
