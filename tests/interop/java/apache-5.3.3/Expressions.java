package firearrow.interop;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * Says what Apache's broker makes of SQL92 expressions: those of a file over the messages before them in it. A line is
 * {@code M name value ...} or {@code E text}, all but the first word in Base64. The answer to an expression is
 * {@code refused}, or a letter for each message: true, false, null, or x for one that ends in an exception.
 */
public final class Expressions {
    private Expressions() {
    }

    public static void main(String[] arguments) throws Exception {
        List<Map<String, String>> messages = new ArrayList<>();
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split(" ", -1);
            if (words[0].equals("M")) {
                Map<String, String> properties = new HashMap<>();
                for (int i = 1; i < words.length; i += 2) {
                    properties.put(text(words[i]), text(words[i + 1]));
                }
                messages.add(properties);
            } else {
                out.println(answer(text(words[1]), messages));
            }
        }
        out.flush();
    }

    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static String answer(String text, List<Map<String, String>> messages) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get(ExpressionType.SQL92).compile(text);
        } catch (Throwable e) {
            return "refused";
        }
        StringBuilder answers = new StringBuilder();
        for (Map<String, String> properties : messages) {
            answers.append(letter(expression, properties));
        }
        return answers.toString();
    }

    private static char letter(Expression expression, Map<String, String> properties) {
        try {
            Object value = expression.evaluate(new MessageEvaluationContext(properties));
            return value == null ? 'n' : Boolean.TRUE.equals(value) ? 't' : 'f';
        } catch (Throwable e) {
            return 'x';
        }
    }
}
