/** kafka-clients 3.9: transactions of version 1, the first form of the consumer protocol. */
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
