package firearrow.interop;

import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * A load on the Apache client, for comparing brokers. Each line of input is one piece of work:
 *
 * <pre>async 512 5 1024     work, how many in flight or threads, seconds, bytes of a body</pre>
 *
 * and is answered by one line of JSON. The JVM stays warm from one to the next.
 */
public final class Load {
    private static final int LATENCIES_MAX = 4_000_000;
    private final String nameserver;
    private final String topic;
    private final DefaultMQProducer producer;

    private Load(String nameserver, String topic) throws Exception {
        this.nameserver = nameserver;
        this.topic = topic;
        producer = new DefaultMQProducer("load");
        producer.setNamesrvAddr(nameserver);
        producer.setSendMsgTimeout(20_000);
        producer.setCompressMsgBodyOverHowmuch(1 << 24);
        producer.start();
    }

    /** Runs what standard input says until it ends. */
    public static void main(String[] args) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (String arg : args) {
            String[] pair = arg.split("=", 2);
            options.put(pair[0], pair[1]);
        }
        Load load = new Load(options.get("nameserver"), options.get("topic"));
        System.out.println("ready");
        try (java.util.Scanner input = new java.util.Scanner(System.in, "UTF-8")) {
            while (input.hasNextLine()) {
                String[] words = input.nextLine().trim().split(" ");
                if (words[0].equals("end")) {
                    break;
                }
                Map<String, Object> result = load.run(words);
                System.out.println(Json.of(result));
            }
        }
        load.producer.shutdown();
        System.exit(0);
    }

    private Map<String, Object> run(String[] words) throws Exception {
        int width = Integer.parseInt(words[1]);
        double seconds = Double.parseDouble(words[2]);
        byte[] body = new byte[Integer.parseInt(words[3])];
        Arrays.fill(body, (byte) 'x');
        switch (words[0]) {
            case "async":
                return async(width, seconds, body);
            case "sync":
                return threads(width, seconds, () -> {
                    producer.send(new Message(topic, body));
                    return 1;
                });
            case "batch":
                return threads(width, seconds, () -> {
                    List<Message> batch = new ArrayList<>(32);
                    for (int i = 0; i < 32; i++) {
                        batch.add(new Message(topic, body));
                    }
                    producer.send(batch);
                    return 32;
                });
            case "consume":
                return consume(width, seconds >= 1 ? (int) seconds : 32);
            case "pull":
                return pull(width);
            case "roundtrip":
                return roundTrip(seconds, body);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private interface Work {
        int once() throws Exception;
    }

    private Map<String, Object> async(int inFlight, double seconds, byte[] body) throws Exception {
        Semaphore room = new Semaphore(inFlight);
        AtomicLong failed = new AtomicLong();
        AtomicInteger done = new AtomicInteger();
        long[] latencies = new long[LATENCIES_MAX];
        long started = System.nanoTime();
        long end = started + (long) (seconds * 1e9);
        while (System.nanoTime() < end) {
            room.acquire();
            long sentAt = System.nanoTime();
            producer.send(new Message(topic, body), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    int index = done.getAndIncrement();
                    if (index < LATENCIES_MAX) {
                        latencies[index] = System.nanoTime() - sentAt;
                    }
                    room.release();
                }

                @Override
                public void onException(Throwable error) {
                    failed.incrementAndGet();
                    room.release();
                }
            });
        }
        room.acquire(inFlight);
        return facts(done.get(), failed.get(), System.nanoTime() - started, latencies, done.get());
    }

    private Map<String, Object> threads(int count, double seconds, Work work) throws Exception {
        AtomicLong failed = new AtomicLong();
        AtomicLong messages = new AtomicLong();
        AtomicInteger calls = new AtomicInteger();
        long[] latencies = new long[LATENCIES_MAX];
        long started = System.nanoTime();
        long end = started + (long) (seconds * 1e9);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Thread thread = new Thread(() -> {
                while (System.nanoTime() < end) {
                    long at = System.nanoTime();
                    try {
                        messages.addAndGet(work.once());
                        int index = calls.getAndIncrement();
                        if (index < LATENCIES_MAX) {
                            latencies[index] = System.nanoTime() - at;
                        }
                    } catch (Exception error) {
                        failed.incrementAndGet();
                    }
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return facts(messages.get(), failed.get(), System.nanoTime() - started, latencies, calls.get());
    }

    /** Reads what is there already, as a new group, so many messages in a call of the listener. */
    private Map<String, Object> consume(int expected, int batch) throws Exception {
        AtomicLong received = new AtomicLong();
        DefaultMQPushConsumer consumer = consumer("consume-" + System.nanoTime());
        consumer.setConsumeMessageBatchMaxSize(batch);
        consumer.setPullThresholdForQueue(20_000);
        long[] first = new long[1];
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (first[0] == 0) {
                first[0] = System.nanoTime();
            }
            received.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long limit = System.nanoTime() + 60_000_000_000L;
        while (received.get() < expected && System.nanoTime() < limit) {
            Thread.sleep(5);
        }
        long spent = System.nanoTime() - first[0];
        consumer.shutdown();
        return facts(received.get(), Math.max(0, expected - received.get()), spent, new long[0], 0);
    }

    /** Reads what is there already by asking for it. */
    private Map<String, Object> pull(int expected) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("pull-" + System.nanoTime());
        consumer.setNamesrvAddr(nameserver);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(32);
        consumer.subscribe(topic, "*");
        consumer.start();
        long received = 0;
        long first = 0;
        long limit = System.nanoTime() + 60_000_000_000L;
        while (received < expected && System.nanoTime() < limit) {
            received += consumer.poll(1000).size();
            if (first == 0 && received > 0) {
                first = System.nanoTime();
            }
        }
        long spent = System.nanoTime() - first;
        consumer.shutdown();
        return facts(received, Math.max(0, expected - received), spent, new long[0], 0);
    }

    /** One message at a time, from the producer to a listener. */
    private Map<String, Object> roundTrip(double seconds, byte[] body) throws Exception {
        Semaphore arrived = new Semaphore(0);
        DefaultMQPushConsumer consumer = consumer("roundtrip-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        String own = "rt" + System.nanoTime();
        consumer.subscribe(topic, own);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            arrived.release(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Thread.sleep(3000);
        for (int i = 0; i < 50; i++) {
            producer.send(new Message(topic, own, body));
        }
        arrived.tryAcquire(50, 20, java.util.concurrent.TimeUnit.SECONDS);
        arrived.drainPermits();
        long[] latencies = new long[LATENCIES_MAX];
        int done = 0;
        long failed = 0;
        long started = System.nanoTime();
        long end = started + (long) (seconds * 1e9);
        while (System.nanoTime() < end) {
            long at = System.nanoTime();
            producer.send(new Message(topic, own, body));
            if (arrived.tryAcquire(10, java.util.concurrent.TimeUnit.SECONDS)) {
                latencies[done++] = System.nanoTime() - at;
            } else {
                failed++;
            }
        }
        consumer.shutdown();
        return facts(done, failed, System.nanoTime() - started, latencies, done);
    }

    private DefaultMQPushConsumer consumer(String group) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameserver);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private static Map<String, Object> facts(
            long messages, long failed, long nanos, long[] latencies, int samples) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("messages", messages);
        facts.put("failed", failed);
        facts.put("seconds", nanos / 1e9);
        facts.put("per_second", (long) (messages * 1e9 / nanos));
        int kept = Math.min(samples, latencies.length);
        long[] sorted = Arrays.copyOf(latencies, kept);
        Arrays.sort(sorted);
        facts.put("p50_ms", kept == 0 ? 0.0 : sorted[kept / 2] / 1e6);
        facts.put("p99_ms", kept == 0 ? 0.0 : sorted[(int) (kept * 99L / 100)] / 1e6);
        return facts;
    }
}
