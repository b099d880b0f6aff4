package firearrow.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads and fills brokers on command, all in one JVM, for tests that look at what is in their stores.
 *
 * <p>Usage: {@code StoreShell NAMESERVER FOLDER}. A line on standard input is one command: a number, a
 * name, then arguments, all separated by the unit separator (0x1F). What it found goes to
 * {@code FOLDER/<number>.json}; then a line of JSON says that it is done, or what went wrong.
 */
public final class StoreShell {
    private static final String SEPARATOR = "\u001f";

    /** What a command does with its arguments; returns what it found. */
    interface Command {
        Object run(List<String> arguments) throws Exception;
    }

    private StoreShell() {
    }

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[1]);
        StoreReading reading = new StoreReading(arguments[0]);
        StoreFilling filling = new StoreFilling(arguments[0], reading.admin);
        Map<String, Command> known = Map.of(
            "read", reading::read,
            "find", reading::find,
            "committed", reading::committed,
            "commit", reading::commit,
            "register", filling::register,
            "create", filling::create,
            "send", filling::send,
            "fill", filling::fill,
            "burst", filling::burst);
        System.out.println("store shell ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            List<String> words = Arrays.asList(line.split(SEPARATOR, -1));
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("id", Integer.parseInt(words.get(0)));
            try {
                Object found = known.get(words.get(1)).run(words.subList(2, words.size()));
                Files.writeString(folder.resolve(words.get(0) + ".json"), Json.of(found));
                answer.put("ok", true);
            } catch (Throwable e) {
                e.printStackTrace();
                answer.put("ok", false);
                answer.put("error", e.toString());
            }
            System.out.println(Json.of(answer));
        }
        // Nobody waits for the clients to say goodbye.
        System.exit(0);
    }
}
