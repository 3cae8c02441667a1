/* A failure with as few steps as can be found: the walk is made again and again, each time in a process of its
 * own and without some of its steps. */
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/unit/core/model/model.h"

#define SHRINK_S    60
#define VERBOSE_MAX 300 /* steps; of more only the last are shown */

static _Atomic uint64_t *progress(void)
{
	static _Atomic uint64_t *p;

	if (!p) {
		p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
			 0);
		if (p == MAP_FAILED)
			tap_fatal("mmap");
	}
	return p;
}

void run_at(uint64_t step)
{
	atomic_store(progress(), step);
}

uint64_t run_apart(const struct run *r, int (*walk)(const struct run *r), bool quiet)
{
	int status;
	pid_t pid;

	run_at(0);
	(void)fflush(stdout);
	pid = fork();
	if (pid < 0)
		tap_fatal("fork");
	if (pid == 0) {
		int null = quiet ? open("/dev/null", O_WRONLY | O_APPEND | O_CLOEXEC) : -1;

		if (quiet && (dup2(null, 1) < 0 || dup2(null, 2) < 0))
			_exit(2);
		exit(walk(r));
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (!quiet)
		printf("# the walk ended with status %#x at step %llu\n", (unsigned)status,
		       (unsigned long long)atomic_load(progress()));
	return atomic_load(progress()) ? atomic_load(progress()) : 1;
}

static bool out_of_time(time_t began)
{
	const char *s = getenv("RATTAN_SHRINK_S");

	return time(NULL) - began > (s ? strtol(s, NULL, 10) : SHRINK_S);
}

void shrink(const struct run *failed, uint64_t step, int (*walk)(const struct run *r))
{
	struct run r = *failed;
	uint8_t *keep = malloc(step + 1), *less = malloc(step + 1);
	time_t began = time(NULL);
	uint64_t left = step, tries = 0;

	if (!keep || !less)
		tap_fatal("memory");
	memset(keep, 1, step + 1);
	r.steps = step;
	r.keep = keep;
	if (!run_apart(&r, walk, true)) {
		printf("# it does not fail every time\n");
		free(keep);
		free(less);
		return;
	}
	for (uint64_t chunk = step / 2; chunk > 0 && !out_of_time(began); chunk /= 2) {
		for (uint64_t at = 1; at <= r.steps && !out_of_time(began); at += chunk) {
			uint64_t end = at + chunk <= r.steps ? at + chunk : r.steps + 1, had = 0, f;

			memcpy(less, keep, step + 1);
			for (uint64_t i = at; i < end; i++) {
				had += less[i];
				less[i] = 0;
			}
			if (!had)
				continue;
			r.keep = less;
			tries++;
			f = run_apart(&r, walk, true);
			if (!f)
				continue;
			memcpy(keep, less, step + 1);
			r.steps = f;
		}
	}
	left = 0;
	for (uint64_t i = 1; i <= r.steps; i++)
		left += keep[i];
	printf("# %llu steps of seed %llu are enough (%llu tries):\n", (unsigned long long)left,
	       (unsigned long long)r.seed, (unsigned long long)tries);
	r.keep = keep;
	r.verbose = left <= VERBOSE_MAX;
	if (!run_apart(&r, walk, false))
		printf("# but not every time\n");
	free(keep);
	free(less);
}
