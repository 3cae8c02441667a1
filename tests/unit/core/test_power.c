/*
 * S2 under a loss of power: several writers with fsyncs, commits, collections and a rollback work on a tree, all that happens
 * on the disk is recorded, and what a power loss could have left at many moments is made, opened and looked
 * at. What had been acknowledged is there, what is there is the state of one moment, fsck is clean, and the
 * store goes on.
 *
 * test_core_power [IMAGES [SEED]]: of work in this process
 * test_core_power IMAGES SEED LOG DATA ENV PREFIX: of work that was recorded elsewhere (tests/e2e/power-daemon.sh), with
 * the store in DATA below the recorder's root, and the writers' directories PREFIXt0 ... in the tree of ENV
 */
#include <time.h>

#include "tests/lib/sanitizer.h"
#include "tests/unit/core/ovl_fixture.h"
#include "tests/unit/core/power_check.h"
#include "tests/unit/core/power_fx.h"

#define STEPS 60 /* of each writer, three times */

static void below(const char *dir, const char *name, char out[static PATH_MAX])
{
	if (snprintf(out, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX)
		tap_fatal("path too long");
}

/* ---- many outcomes ---- */

static uint64_t next(uint64_t *rnd)
{
	*rnd = *rnd * 6364136223846793005u + 1442695040888963407u;
	return *rnd >> 33;
}

/* Moments, ascending: around the ends of syncs, and anywhere. */
static size_t *choose(const struct disk *d, size_t n, uint64_t seed)
{
	size_t *at = calloc(n, sizeof(*at)), *sync = calloc(disk_events(d), sizeof(*at)), nsync = 0;

	if (!at || !sync)
		tap_fatal("memory");
	for (size_t i = 0; i < disk_events(d); i++) {
		uint32_t type = disk_event(d, i)->type;

		if (type == POWER_SYNCED || type == POWER_WRITTEN || type == POWER_DIRSYNCED)
			sync[nsync++] = i;
	}
	for (size_t i = 0; i < n; i++) {
		if (i % 2 && nsync)
			at[i] = sync[next(&seed) % nsync] + next(&seed) % 2;
		else
			at[i] = next(&seed) % (disk_events(d) + 1);
	}
	free(sync);
	for (size_t i = 1; i < n; i++)
		for (size_t k = i; k > 0 && at[k - 1] > at[k]; k--) {
			size_t x = at[k];

			at[k] = at[k - 1];
			at[k - 1] = x;
		}
	return at;
}

/* In a process of its own: an image must not bring down the test. */
static bool try_image(const struct disk *d, const char *dir, const char *place,
		      struct power_crash *c, uint64_t seed)
{
	char data[PATH_MAX];
	int status;
	pid_t pid;

	if (mkdir(dir, 0700) < 0 || disk_image(d, dir, seed) < 0)
		tap_fatal("cannot make an image: %m");
	below(dir, place, data);
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		bool good = power_check(data, c, seed);

		if (!good)
			printf("# %s: %s\n", disk_told(d), c->why);
		(void)fflush(stdout);
		_exit(good ? 0 : 1);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		tap_fatal("fork");
	if (WIFSIGNALED(status))
		printf("# %s: killed by signal %d\n", disk_told(d), WTERMSIG(status));
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void record(const char *dir, const char *log, uint64_t seed, unsigned steps, bool synclog)
{
	char data[PATH_MAX];
	int status = -1;
	pid_t pid = fork();

	below(dir, "a/data", data);
	if (pid == 0) {
		if (power_record(dir, log) < 0)
			_exit(2);
		power_fx_work(data, seed, steps, synclog);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
		tap_fatal("the work ended with %d", status);
}

/* What may have become of the work in the log. @what: env and prefix. */
static void look(const char *dir, const char *log, const char *data, const struct power_crash *what,
		 size_t images, uint64_t seed)
{
	struct disk *d = disk_new(log);
	char image[PATH_MAX];
	size_t bad = 0, *at;

	if (!d)
		tap_fatal("the log cannot be read");
	below(dir, "image", image);
	printf("# seed %llu\n", (unsigned long long)seed);
	ok(power_check_notes(d), "the work was recorded");
	at = choose(d, images, seed);
	for (size_t i = 0; i < images && bad < 10; i++) {
		struct power_crash c = *what;

		c.at = at[i];
		while (disk_at(d) < at[i])
			disk_step(d);
		bad += !try_image(d, image, data, &c, seed * 1000003 + i);
		fx_rm(image);
	}
	eq_int((long long)bad, 0, "%zu outcomes of a power loss", images);
	free(at);
	disk_free(d);
}

/* @synclog: fsyncs are written to the environment's log. */
static void work_and_look(const char *dir, size_t images, uint64_t seed, bool synclog)
{
	const struct power_crash what = {.env = "e", .prefix = ""};
	char work[PATH_MAX], log[PATH_MAX];

	below(dir, "work", work);
	below(dir, "log", log);
	if (mkdir(work, 0700) < 0)
		tap_fatal("mkdir: %m");
	(void)unlink(log);
	record(work, log, seed, STEPS, synclog);
	fx_rm(work);
	look(dir, log, "a/data", &what, images, seed);
}

int main(int argc, char **argv)
{
	char dir[PATH_MAX];
	const char *tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	size_t images = argc > 1                ? strtoul(argv[1], NULL, 10)
			: UNDER_TSAN            ? 16
			: getenv("RATTAN_LONG") ? 200
						: 40;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);

	(void)snprintf(dir, sizeof(dir), "%s/rattan-power-XXXXXX", tmp);
	if (!mkdtemp(dir))
		tap_fatal("mkdtemp");
	if (argc == 7) {
		const struct power_crash what = {.env = argv[5], .prefix = argv[6]};

		look(dir, argv[3], argv[4], &what, images, seed);
	} else {
		work_and_look(dir, images - images / 2, seed, true);
		work_and_look(dir, images / 2, seed, false);
	}
	fx_rm(dir);
	return tap_done();
}
