/** kafka-clients 4.3: the version before the newest, which many have. */
final class Main {
    private Main() {}

    public static void main(String[] arguments) throws InterruptedException {
        Checks checks = new Checks();
        if (Checks.isSecured()) {
            Secured.addTo(checks);
            checks.main(arguments);
        }
        Producing.addTo(checks);
        Consuming.addTo(checks);
        Transacting.addTo(checks);
        ClassicGroups.addTo(checks);
        ConsumerGroups.addTo(checks);
        checks.main(arguments);
    }
}
