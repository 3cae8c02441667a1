/* Who uses an environment right now. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "base/io.h"
#include "fs/env/env_internal.h"

#define LEASES_MAX 1024

int env_lease(struct env *e, const void *owner, const char *what, int pidfd, struct diag *diag)
{
	struct env_lease *l = calloc(1, sizeof(*l));

	if (l)
		l->what = strndup(what ? what : "a command", 200);
	if (!l || !l->what) {
		free(l);
		return -ENOMEM;
	}
	ENV_LOCK(e);
	/* One connection, one lease: the second call tells the process of the command that was
	 * announced by the first. */
	for (struct env_lease *had = e->leases; had; had = had->next) {
		if (had->owner != owner)
			continue;
		if (had->pidfd >= 0)
			(void)close(had->pidfd);
		free(had->what);
		had->what = l->what;
		had->pidfd = pidfd;
		free(l);
		env_keep_lease_locked(e, had);
		return 0;
	}
	if (e->nleases >= LEASES_MAX) {
		free(l->what);
		free(l);
		return diag_set(diag, -EMFILE, "%d commands run already", LEASES_MAX);
	}
	l->owner = owner;
	l->pidfd = pidfd;
	l->next = e->leases;
	e->leases = l;
	e->nleases++;
	l->id = ++e->next_id;
	env_keep_lease_locked(e, l);
	return 0;
}

static void lease_end_locked(struct env *e, struct env_lease **p)
{
	struct env_lease *l = *p;

	*p = l->next;
	keeper_drop(&e->link, KEEP_LEASE, l->id);
	if (l->pidfd >= 0)
		(void)close(l->pidfd);
	free(l->what);
	free(l);
	e->nleases--;
}

bool env_prune(struct env *e)
{
	bool left = false;

	/* Whoever holds it for long is about to change all of this anyway. */
	if (pthread_mutex_trylock(&e->lock) != 0)
		return true;
	for (struct env_lease **p = &e->leases; *p;) {
		struct env_lease *l = *p;

		if (!l->owner &&
		    (l->pidfd >= 0 ? env_process_gone(l->pidfd) : io_now_ms() > l->until)) {
			lease_end_locked(e, p);
			continue;
		}
		left |= !l->owner;
		p = &l->next;
	}
	left |= env_binds_prune_locked(e);
	(void)pthread_mutex_unlock(&e->lock);
	return left;
}

void env_unlease(struct env *e, const void *owner)
{
	ENV_LOCK(e);
	for (struct env_lease **p = &e->leases; *p;) {
		struct env_lease *l = *p;

		if (l->owner != owner) {
			p = &l->next;
			continue;
		}
		lease_end_locked(e, p);
	}
}

unsigned env_leases(struct env *e)
{
	return atomic_load(&e->nleases);
}

int env_check_idle_locked(struct env *e, const void *owner, struct diag *diag)
{
	char text[300];
	size_t n = 0;
	unsigned others = 0;

	text[0] = 0;
	for (const struct env_lease *l = e->leases; l; l = l->next) {
		int k;

		if (l->owner == owner && owner)
			continue;
		if (!l->owner && l->pidfd >= 0 && env_process_gone(l->pidfd))
			continue;
		others++;
		k = snprintf(text + n, sizeof(text) - n, "%s%s", others > 1 ? ", " : "", l->what);
		n = k < 0 || n + (size_t)k >= sizeof(text) ? sizeof(text) - 1 : n + (size_t)k;
	}
	if (!others)
		return 0;
	return diag_set(diag, -EBUSY,
			"%u command%s run%s in \"%s\" (%s); wait, or force it to end them", others,
			others > 1 ? "s" : "", others > 1 ? "" : "s", e->rec.name, text);
}

int env_check_idle(struct env *e, const void *owner, struct diag *diag)
{
	ENV_LOCK(e);
	return env_check_idle_locked(e, owner, diag);
}

/* SIGKILL, and a moment for it to be done; a lease stays its connection's until that gives it up. */
void env_kill_leases_locked(struct env *e, const void *owner)
{
	long long end = io_now_ms() + 2000;

	for (const struct env_lease *l = e->leases; l; l = l->next)
		if ((l->owner != owner || !owner) && l->pidfd >= 0)
			(void)pidfd_send_signal(l->pidfd, SIGKILL, NULL, 0);
	for (const struct env_lease *l = e->leases; l; l = l->next) {
		struct pollfd p = {.fd = l->pidfd, .events = POLLIN};
		long long left = end - io_now_ms();

		if ((l->owner != owner || !owner) && l->pidfd >= 0)
			(void)poll(&p, 1, left > 0 ? (int)left : 0);
	}
}
