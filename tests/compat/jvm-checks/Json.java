import java.util.Collection;
import java.util.Map;
import java.util.StringJoiner;
import java.util.TreeMap;

/** Writes the few kinds of values that checks report as JSON. */
final class Json {
    private Json() {}

    /** Maps (their keys as text, in order), collections, numbers, booleans and null; everything else as its text. */
    static String write(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof Map<?, ?> map) {
            Map<String, Object> sorted = new TreeMap<>();
            map.forEach((key, one) -> sorted.put(String.valueOf(key), one));
            StringJoiner members = new StringJoiner(", ", "{", "}");
            sorted.forEach((key, one) -> members.add(quote(key) + ": " + write(one)));
            return members.toString();
        }
        if (value instanceof Collection<?> collection) {
            StringJoiner items = new StringJoiner(", ", "[", "]");
            collection.forEach(one -> items.add(write(one)));
            return items.toString();
        }
        return quote(String.valueOf(value));
    }

    private static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        text.chars().forEach(unit -> {
            if (unit == '"' || unit == '\\') {
                quoted.append('\\').append((char) unit);
            } else if (unit < ' ' || unit > '~') {
                quoted.append(String.format("\\u%04x", unit));
            } else {
                quoted.append((char) unit);
            }
        });
        return quoted.append('"').toString();
    }
}
