import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.TreeMap;
import org.apache.commons.codec.binary.Hex;
import org.apache.rocketmq.acl.common.AclUtils;
import org.apache.rocketmq.remoting.annotation.CFNotNull;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;

/** Prints what RocketMQ's own classes say about the remoting protocol, a line a fact, tabs between. */
public final class DescribeRemoting {
    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "fields":
                for (int i = 1; i < args.length; i++) {
                    fields(Class.forName("org.apache.rocketmq.remoting.protocol.header." + args[i]), args[i]);
                }
                break;
            case "codes":
                constants("RequestCode", RequestCode.class);
                constants("ResponseCode", ResponseCode.class);
                for (LanguageCode language : LanguageCode.values()) {
                    line("LanguageCode", language.name(), language.getCode());
                }
                break;
            case "frames":
                for (int i = 1; i < args.length; i++) {
                    frame(args[i]);
                }
                break;
            case "sign":
                line("signature", AclUtils.calSignature(Hex.decodeHex(args[1]), args[2]));
                break;
            default:
                throw new IllegalArgumentException(args[0]);
        }
    }

    private static void fields(Class<?> header, String name) {
        for (Class<?> level = header; level != Object.class; level = level.getSuperclass()) {
            for (Field field : level.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers())) {
                    boolean needed = field.isAnnotationPresent(CFNotNull.class);
                    line(name, field.getName(), field.getType().getSimpleName(), needed);
                }
            }
        }
    }

    private static void constants(String name, Class<?> codes) throws IllegalAccessException {
        for (Field field : codes.getFields()) {
            line(name, field.getName(), field.getInt(null));
        }
    }

    private static void frame(String hex) throws Exception {
        byte[] frame = Hex.decodeHex(hex);
        RemotingCommand command = RemotingCommand.decode(ByteBuffer.wrap(frame, 4, frame.length - 4));
        line("code", command.getCode());
        line("opaque", command.getOpaque());
        line("flag", command.getFlag());
        line("language", command.getLanguage());
        line("version", command.getVersion());
        line("remark", hex(command.getRemark()));
        line("type", command.getSerializeTypeCurrentRPC());
        line("body", command.getBody() == null ? "" : Hex.encodeHexString(command.getBody()));
        for (Map.Entry<String, String> field : new TreeMap<>(command.getExtFields()).entrySet()) {
            line("field", hex(field.getKey()), hex(field.getValue()));
        }
        ByteBuffer encoded = command.encode();
        line("frame", Hex.encodeHexString(encoded.array()).substring(0, 2 * encoded.limit()));
    }

    private static String hex(String text) throws Exception {
        return text == null ? "" : Hex.encodeHexString(text.getBytes("UTF-8"));
    }

    private static void line(Object... columns) {
        StringBuilder line = new StringBuilder("@");
        for (Object column : columns) {
            line.append('\t').append(column);
        }
        System.out.println(line);
    }
}
