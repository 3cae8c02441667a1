/* Work that may take long: how far it is, and an end when it is asked for. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/io.h"
#include "cli/cli.h"

#define QUIET_MS 1000 /* what is done by then tells nothing */

static const int all[] = {SIGINT, SIGTERM, SIGHUP};

void cli_ending_signals(sigset_t *ret)
{
	struct sigaction was;

	(void)sigemptyset(ret);
	/* What this process was told to ignore (nohup) is not held either: held, it would seem to have come. */
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (sigaction(all[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN)
			(void)sigaddset(ret, all[i]);
}

bool cli_ending_came(const sigset_t *of)
{
	sigset_t p;

	if (sigpending(&p) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (sigismember(of, all[i]) > 0 && sigismember(&p, all[i]) > 0)
			return true;
	return false;
}

static bool held(const sigset_t *mask)
{
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (sigismember(mask, all[i]) > 0)
			return true;
	return false;
}

void cli_work_begin(struct cli_work *w, const char *verb)
{
	*w = (struct cli_work){.verb = verb, .began = io_now_ms()};
	cli_ending_signals(&w->ending);
	(void)sigprocmask(SIG_BLOCK, &w->ending, &w->old);
	cli_bar_start(&w->bar);
}

int cli_work_on(void *arg, const char *stage, uint64_t done, uint64_t total)
{
	struct cli_work *w = arg;

	w->told = true;
	if (io_now_ms() >= w->began + QUIET_MS)
		cli_bar_put(&w->bar, w->verb, stage, done, total);
	return cli_ending_came(&w->ending);
}

int cli_work_bytes(void *arg, const char *stage, uint64_t done, uint64_t total)
{
	(void)stage;
	return cli_work_on(arg, "MiB", done >> 20, total >> 20);
}

int cli_work_idle(void *arg)
{
	struct cli_work *w = arg;
	long long ms = io_now_ms() - w->began;

	if (!w->told && ms >= QUIET_MS)
		cli_bar_put(&w->bar, w->verb, "for seconds", (uint64_t)ms / 1000, 0);
	return cli_ending_came(&w->ending);
}

void cli_work_end(struct cli_work *w, const char *said)
{
	cli_bar_clear(&w->bar);
	/* Held outside, it is told there. */
	if (cli_ending_came(&w->ending) && !held(&w->old)) {
		(void)fflush(stdout);
		fprintf(stderr, "rattan: interrupted; %s\n", said ? said : "all was done by then");
	}
	/* Here it ends, as by nature, where one has come and nobody outside holds it. */
	(void)sigprocmask(SIG_SETMASK, &w->old, NULL);
}

void cli_wait_begin(struct cli_work *w, struct ctl *ctl, const char *verb)
{
	cli_work_begin(w, verb);
	ctl_on_wait(ctl, cli_work_idle, w);
}

void cli_wait_end(struct cli_work *w, struct ctl *ctl, const char *said)
{
	ctl_on_wait(ctl, NULL, NULL);
	cli_work_end(w, said);
}
