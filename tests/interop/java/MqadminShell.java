package firearrow.interop;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs many mqadmin commands in one JVM, because starting one for each would take most of the time.
 *
 * <p>A line on standard input is one command: a number, then the arguments, all separated by the unit
 * separator (0x1F). The answer is one line of JSON with the number and what the command printed.
 */
public final class MqadminShell {
    private static final String SEPARATOR = "\u001f";

    private MqadminShell() {
    }

    private static final PrintStream ANSWERS = System.out;
    private static final ByteArrayOutputStream PRINTED = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream COMPLAINED = new ByteArrayOutputStream();

    /** The number of the command that runs, or 0. */
    private static volatile int running = 0;

    public static void main(String[] ignored) throws Exception {
        Hurry.watch(Thread.currentThread());
        // A command with wrong options ends the JVM, as it would end mqadmin; its help text is the answer.
        Runtime.getRuntime().addShutdownHook(new Thread(MqadminShell::answer));
        System.setOut(new PrintStream(PRINTED, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(COMPLAINED, true, StandardCharsets.UTF_8));
        ANSWERS.println("mqadmin shell ready");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(SEPARATOR, -1);
            PRINTED.reset();
            COMPLAINED.reset();
            running = Integer.parseInt(words[0]);
            MQAdminStartup.main0(Arrays.copyOfRange(words, 1, words.length), null);
            answer();
        }
        // The name-server clients leave threads behind that would keep the JVM alive for seconds.
        System.exit(0);
    }

    private static void answer() {
        if (running == 0) {
            return;
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", running);
        answer.put("out", PRINTED.toString(StandardCharsets.UTF_8));
        answer.put("err", COMPLAINED.toString(StandardCharsets.UTF_8));
        ANSWERS.println(Json.of(answer));
        running = 0;
    }
}
