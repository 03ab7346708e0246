package forebay.compat;

/** A command line that cannot be carried out; the message says why. */
public final class UsageException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    public UsageException(String message) {
        super(message);
    }
}
