package firearrow.interop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Runs scenarios of RocketMQ's Java client in one JVM and prints one line of JSON for each.
 *
 * <p>Usage: {@code Round nameserver=HOST:PORT topic=T group=G [count=N] [timeout=SECONDS] SCENARIO...}.
 * Scenarios run in the given order and share what was sent: a consuming scenario expects every message
 * that the sending ones before it have sent. A failed scenario does not end the round. The last line is
 * the verdict.
 */
public final class Round {
    private Round() {
    }

    /** What a scenario does; it fails by an exception, or by facts that say what is missing or unexpected. */
    interface Scenario {
        Map<String, Object> run(Context context) throws Exception;
    }

    public static void main(String[] arguments) {
        Map<String, String> options = new LinkedHashMap<>();
        List<String> names = new ArrayList<>();
        for (String argument : arguments) {
            int equals = argument.indexOf('=');
            if (equals < 0) {
                names.add(argument);
            } else {
                options.put(argument.substring(0, equals), argument.substring(equals + 1));
            }
        }
        Hurry.watch(Thread.currentThread());
        Context context = new Context(options);
        List<String> failed = new ArrayList<>();
        for (String name : names) {
            if (!run(name, context)) {
                failed.add(name);
            }
        }
        context.close();
        Map<String, Object> verdict = new LinkedHashMap<>();
        verdict.put("verdict", failed.isEmpty() ? "pass" : "fail");
        verdict.put("scenarios", names.size());
        verdict.put("failed", failed);
        System.out.println(Json.of(verdict));
        // Without this, threads of the clients keep the JVM alive for some seconds.
        System.exit(failed.isEmpty() ? 0 : 1);
    }

    private static boolean run(String name, Context context) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("scenario", name);
        long start = System.nanoTime();
        boolean ok = false;
        try {
            Scenario scenario = Catalogue.SCENARIOS.get(name);
            if (scenario == null) {
                throw new IllegalArgumentException("unknown scenario, known are " + Catalogue.SCENARIOS.keySet());
            }
            line.putAll(scenario.run(context));
            ok = isEmpty(line.get("missing")) && isEmpty(line.get("unexpected"));
        } catch (Throwable e) {
            line.put("error", e.toString());
            e.printStackTrace();
        }
        line.put("ok", ok);
        line.put("ms", (System.nanoTime() - start) / 1_000_000);
        System.out.println(Json.of(line));
        return ok;
    }

    private static boolean isEmpty(Object fact) {
        return fact == null || ((Collection<?>) fact).isEmpty();
    }
}
