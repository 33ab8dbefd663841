/** kafka-clients 4.4: two-phase commits (KIP-939), which its producer has, but does not offer yet. */
final class Main {
    private Main() {}

    public static void main(String[] arguments) throws InterruptedException {
        Checks checks = new Checks();
        if (Checks.isSecured()) {
            checks.add("two-phase-without-the-right", TwoPhaseCommitting::withoutTheRight);
            checks.main(arguments);
        }
        TwoPhaseCommitting.addTo(checks);
        checks.main(arguments);
    }
}
