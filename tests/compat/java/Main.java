/** kafka-clients 4.4: what it shares with older versions, and what is new in it. */
final class Main {
    private Main() {}

    public static void main(String[] arguments) throws InterruptedException {
        Checks checks = new Checks();
        if (Checks.isSecured()) {
            Secured.addTo(checks);
            checks.main(arguments);
        }
        Producing.addTo(checks);
        checks.add("produce-batch-too-large", Producing::batchTooLarge);
        Consuming.addTo(checks);
        Transacting.addTo(checks);
        Administering.addTo(checks);
        ClassicGroups.addTo(checks);
        ConsumerGroups.addTo(checks);
        CurrentGroups.addTo(checks);
        Sharing.addTo(checks);
        checks.main(arguments);
    }
}
