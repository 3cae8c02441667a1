/* The decision to spin, with a made-up clock. */
#include "fs/fuse/spin.h"

#include "tests/lib/tap.h"

#define US UINT64_C(1000)

/* A client that asks again after @fast us when the reader spins and @slow us when it blocks; returns
 * how many of @n requests were met by a spin. */
static int stream(struct spin *s, uint64_t *now, uint64_t fast, uint64_t slow, int n)
{
	int spun = 0;

	for (int i = 0; i < n; i++) {
		bool spin = spin_wanted(s);
		uint64_t gap = (spin ? fast : slow) * US;

		if (spin && gap > s->max_ns) {
			spin_expired(s);
			gap = slow * US;
			spin = false;
		}
		*now += gap;
		spin_arrived(s, *now, spin);
		spun += spin;
	}
	return spun;
}

static void test_choice(void)
{
	struct spin s;
	uint64_t now = 1;
	int spun;

	spin_init(&s, 50 * US, false);
	ok(!spin_wanted(&s), "a quiet session blocks");
	(void)stream(&s, &now, 20, 120, 10);
	ok(spin_wanted(&s), "a stream is worth a spin");
	spun = stream(&s, &now, 20, 120, 20000);
	ok(spun > 18000, "spins where that is faster (%d of 20000)", spun);
	ok(spun < 19500, "and still tries the other way at times");

	(void)stream(&s, &now, 40, 20, 5000);
	spun = stream(&s, &now, 40, 20, 20000);
	ok(spun < 2000, "blocks where that is faster (%d of 20000)", spun);
	ok(spun > 500, "and still tries to spin at times");

	(void)stream(&s, &now, 20, 120, 5000);
	spun = stream(&s, &now, 20, 120, 20000);
	ok(spun > 18000, "changes back when the machine does (%d)", spun);

	(void)stream(&s, &now, 19, 20, 5000);
	spun = stream(&s, &now, 20, 19, 20000);
	ok(spun > 18000, "5 %% is no reason to change (%d)", spun);
}

static void test_quiet(void)
{
	struct spin s;
	uint64_t now = 1;
	int expired = 0;

	spin_init(&s, 50 * US, false);
	(void)stream(&s, &now, 20, 120, 10);
	for (int i = 0; i < 1000; i++) { /* a request every 2 ms */
		if (spin_wanted(&s)) {
			spin_expired(&s);
			expired++;
		}
		now += 2000 * US;
		spin_arrived(&s, now, false);
	}
	ok(expired <= 2, "slow requests cost no spins (%d)", expired);

	spin_init(&s, 50 * US, false);
	expired = 0;
	for (int i = 0; i < 1000; i++) { /* close, but never within a spin */
		if (spin_wanted(&s)) {
			spin_expired(&s);
			expired++;
		}
		now += 300 * US;
		spin_arrived(&s, now, false);
	}
	ok(expired < 60, "fruitless spins get rare (%d)", expired);
}

static void test_fixed(void)
{
	struct spin s;
	uint64_t now = 1;

	spin_init(&s, 0, false);
	eq_int(stream(&s, &now, 20, 120, 5000), 0, "never, when told so");
	spin_init(&s, 50 * US, true);
	ok(stream(&s, &now, 40, 20, 5000) > 4990, "always, when told so");
}

int main(void)
{
	test_choice();
	test_quiet();
	test_fixed();
	return tap_done();
}
