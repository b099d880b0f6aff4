package firearrow.interop;

import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What a client can find out about the messages of a broker. */
@SuppressWarnings("deprecation")
final class StoreReading {
    private static final Set<String> ADDED_BY_CLIENT = Set.of("MIN_OFFSET", "MAX_OFFSET");

    final DefaultMQAdminExt admin;
    private final String nameserver;
    private final DefaultMQPullConsumer consumer;
    private final Map<String, DefaultMQPullConsumer> byGroup = new TreeMap<>();

    StoreReading(String nameserver) throws Exception {
        this.nameserver = nameserver;
        admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(nameserver);
        admin.setInstanceName("store-admin");
        admin.start();
        consumer = consumer("store-reader");
    }

    private DefaultMQPullConsumer consumer(String group) throws Exception {
        DefaultMQPullConsumer made = byGroup.get(group);
        if (made == null) {
            made = new DefaultMQPullConsumer(group);
            made.setNamesrvAddr(nameserver);
            made.setInstanceName(group);
            made.start();
            byGroup.put(group, made);
        }
        return made;
    }

    /** {@code BROKER TOPIC:QUEUE...}: both ends of each queue, all its messages, some offsets by time. */
    Object read(List<String> arguments) throws Exception {
        List<Object> queues = new ArrayList<>();
        List<Object> messages = new ArrayList<>();
        List<Object> times = new ArrayList<>();
        for (String name : arguments.subList(1, arguments.size())) {
            MessageQueue queue = queue(arguments.get(0), name);
            List<MessageExt> found = messages(queue, queues);
            for (MessageExt message : found) {
                messages.add(facts(message));
            }
            if (!found.isEmpty()) {
                times.addAll(times(queue, found));
            }
        }
        return Map.of("queues", queues, "messages", messages, "times", times);
    }

    static MessageQueue queue(String broker, String name) {
        int colon = name.lastIndexOf(':');
        return new MessageQueue(name.substring(0, colon), broker, Integer.parseInt(name.substring(colon + 1)));
    }

    private List<MessageExt> messages(MessageQueue queue, List<Object> ends) throws Exception {
        long min = consumer.minOffset(queue);
        long max = consumer.maxOffset(queue);
        ends.add(Map.of("topic", queue.getTopic(), "queueId", queue.getQueueId(), "min", min, "max", max));
        List<MessageExt> found = new ArrayList<>();
        long next = min;
        while (next < max) {
            PullResult result = consumer.pull(queue, "*", next, 32, 10_000);
            if (result.getPullStatus() == PullStatus.FOUND) {
                found.addAll(result.getMsgFoundList());
            }
            if (result.getNextBeginOffset() <= next) {
                throw new IllegalStateException(queue + " does not go on from " + next + " of " + max + ": " + result);
            }
            next = result.getNextBeginOffset();
        }
        return found;
    }

    private List<Object> times(MessageQueue queue, List<MessageExt> found) throws Exception {
        Set<Long> asked = new TreeSet<>();
        for (int index : new int[] {0, found.size() / 2, found.size() - 1}) {
            long stored = found.get(index).getStoreTimestamp();
            asked.addAll(List.of(stored - 1, stored, stored + 1));
        }
        List<Object> times = new ArrayList<>();
        for (long time : asked) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("topic", queue.getTopic());
            line.put("queueId", queue.getQueueId());
            line.put("timestamp", time);
            line.put("lower", admin.searchLowerBoundaryOffset(queue, time));
            line.put("upper", admin.searchUpperBoundaryOffset(queue, time));
            times.add(line);
        }
        return times;
    }

    /** Everything about one message but its body, of which it says the hash. */
    static Map<String, Object> facts(MessageExt message) throws Exception {
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        properties.keySet().removeAll(ADDED_BY_CLIENT);
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("topic", message.getTopic());
        facts.put("queueId", message.getQueueId());
        facts.put("queueOffset", message.getQueueOffset());
        facts.put("physicalOffset", message.getCommitLogOffset());
        facts.put("storeSize", message.getStoreSize());
        facts.put("offsetMsgId", ((MessageClientExt) message).getOffsetMsgId());
        facts.put("flag", message.getFlag());
        facts.put("sysFlag", message.getSysFlag());
        facts.put("bornTimestamp", message.getBornTimestamp());
        facts.put("bornHost", host(message.getBornHost()));
        facts.put("storeTimestamp", message.getStoreTimestamp());
        facts.put("storeHost", host(message.getStoreHost()));
        facts.put("reconsumeTimes", message.getReconsumeTimes());
        facts.put("preparedOffset", message.getPreparedTransactionOffset());
        facts.put("bodyCrc", message.getBodyCRC());
        facts.put("bodySize", body.length);
        facts.put("bodySha256", HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body)));
        facts.put("properties", properties);
        return facts;
    }

    /** Hex digits of the address, which has one form only, and the port. */
    private static String host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return HexFormat.of().formatHex(host.getAddress().getAddress()) + ":" + host.getPort();
    }

    /** {@code CLUSTER KIND TOPIC NAME ...}: offset ids of what is found by key, unique key or id. */
    Object find(List<String> arguments) throws Exception {
        List<Object> found = new ArrayList<>();
        Set<String> known = new TreeSet<>();
        for (int at = 1; at < arguments.size(); at += 3) {
            if (known.add(arguments.get(at + 1))) {
                // What the client remembers may be from a time when other brokers ran.
                admin.getDefaultMQAdminExtImpl().getMqClientInstance()
                    .updateTopicRouteInfoFromNameServer(arguments.get(at + 1));
            }
            found.add(ids(arguments.get(0), arguments.get(at), arguments.get(at + 1), arguments.get(at + 2)));
        }
        return found;
    }

    private List<String> ids(String cluster, String kind, String topic, String name) throws Exception {
        List<String> ids = new ArrayList<>();
        try {
            if (kind.equals("key")) {
                QueryResult result = admin.queryMessage(cluster, topic, name, 64, 0, Long.MAX_VALUE);
                for (MessageExt message : result.getMessageList()) {
                    ids.add(((MessageClientExt) message).getOffsetMsgId());
                }
            } else {
                ids.add(((MessageClientExt) admin.viewMessage(topic, name)).getOffsetMsgId());
            }
        } catch (MQClientException e) {
            // Nothing found, which the caller compares like anything else.
        }
        return ids;
    }

    /** {@code GROUP BROKER TOPIC:QUEUE:OFFSET...}: reads each queue up to an offset and commits that. */
    Object commit(List<String> arguments) throws Exception {
        DefaultMQPullConsumer member = consumer(arguments.get(0));
        for (String name : arguments.subList(2, arguments.size())) {
            int colon = name.lastIndexOf(':');
            int offset = Integer.parseInt(name.substring(colon + 1));
            MessageQueue queue = queue(arguments.get(1), name.substring(0, colon));
            PullResult result = member.pull(queue, "*", 0, offset);
            if (result.getNextBeginOffset() != offset) {
                throw new IllegalStateException(queue + " has no " + offset + " messages: " + result);
            }
            member.getDefaultMQPullConsumerImpl().getOffsetStore()
                .updateConsumeOffsetToBroker(queue, offset, false);
        }
        return true;
    }

    /** {@code GROUP BROKER TOPIC:QUEUE...}: the committed offset of each queue, in this order. */
    Object committed(List<String> arguments) throws Exception {
        List<Long> offsets = new ArrayList<>();
        for (String name : arguments.subList(2, arguments.size())) {
            offsets.add(consumer(arguments.get(0)).fetchConsumeOffset(queue(arguments.get(1), name), true));
        }
        return offsets;
    }
}
