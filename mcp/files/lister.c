#include "mcp/files/lister.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"

enum {
	SLOTS = 32 /* each may hold a descriptor and a directory's names */
};

struct slot {
	enum {
		FREE,
		ASKED,
		BEGUN,
		DONE
	} state;
	int dir_fd;
	const char *name;
	unsigned long
		turn; /* the newest is wanted first: it is of the directory that is walked now */
	struct names names;
};

struct lister {
	struct names_opts o;
	pthread_t thread;
	pthread_mutex_t lock; /* leaf; all below */
	pthread_cond_t work, done;
	struct slot slots[SLOTS];
	unsigned long turn;
	bool idle, stop;
};

/* l->lock. Of one directory the first asked, of several the one that was asked for last. */
static struct slot *next_asked(struct lister *l)
{
	struct slot *best = NULL;

	for (size_t i = 0; i < SLOTS; i++) {
		struct slot *x = &l->slots[i];

		if (x->state != ASKED)
			continue;
		if (!best ||
		    (x->dir_fd == best->dir_fd ? x->turn < best->turn : x->turn > best->turn))
			best = x;
	}
	return best;
}

static void *lister_main(void *arg)
{
	struct lister *l = arg;

	pthread_mutex_lock(&l->lock);
	while (!l->stop) {
		struct slot *x = next_asked(l);

		if (!x) {
			l->idle = true;
			pthread_cond_wait(&l->work, &l->lock);
			l->idle = false;
			continue;
		}
		x->state = BEGUN;
		pthread_mutex_unlock(&l->lock);
		names_below(x->dir_fd, x->name, &l->o, &x->names);
		pthread_mutex_lock(&l->lock);
		x->state = DONE;
		pthread_cond_signal(&l->done);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

int lister_new(const struct names_opts *o, struct lister **ret)
{
	struct lister *l;
	int r;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return -EAGAIN;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->o = *o;
	pthread_mutex_init(&l->lock, NULL);
	(void)thread_cond_init(&l->work);
	(void)thread_cond_init(&l->done);
	r = thread_start(&l->thread, lister_main, l);
	if (r < 0) {
		free(l);
		return r;
	}
	*ret = l;
	return 0;
}

void lister_free(struct lister *l)
{
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_cond_signal(&l->work);
	pthread_mutex_unlock(&l->lock);
	(void)pthread_join(l->thread, NULL);
	for (size_t i = 0; i < SLOTS; i++)
		if (l->slots[i].state == DONE)
			names_release(&l->slots[i].names);
	pthread_mutex_destroy(&l->lock);
	pthread_cond_destroy(&l->work);
	pthread_cond_destroy(&l->done);
	free(l);
}

/* l->lock. Waits where it has begun. False: nobody had begun, or it could not be opened: there may be descriptors by now, and who
 * walks tells why. The slot is free again. */
static bool take_back(struct lister *l, struct slot *x, struct names *ret)
{
	bool listed;

	while (x->state == BEGUN)
		pthread_cond_wait(&l->done, &l->lock);
	listed = x->state == DONE && x->names.dir;
	if (listed)
		*ret = x->names;
	*x = (struct slot){.state = FREE};
	return listed;
}

void lister_ask(struct lister *l, int dir_fd, const char *name)
{
	pthread_mutex_lock(&l->lock);
	for (size_t i = 0; i < SLOTS; i++) {
		struct slot *x = &l->slots[i];

		if (x->state != FREE)
			continue;
		*x = (struct slot){
			.state = ASKED, .dir_fd = dir_fd, .name = name, .turn = l->turn++};
		if (l->idle)
			pthread_cond_signal(&l->work);
		break;
	}
	pthread_mutex_unlock(&l->lock);
}

bool lister_take(struct lister *l, int dir_fd, const char *name, struct names *ret)
{
	bool listed = false;

	pthread_mutex_lock(&l->lock);
	for (size_t i = 0; i < SLOTS; i++) {
		struct slot *x = &l->slots[i];

		if (x->state == FREE || x->dir_fd != dir_fd || strcmp(x->name, name) != 0)
			continue;
		listed = take_back(l, x, ret);
		break;
	}
	pthread_mutex_unlock(&l->lock);
	return listed;
}

void lister_leave(struct lister *l, int dir_fd)
{
	pthread_mutex_lock(&l->lock);
	for (size_t i = 0; i < SLOTS; i++) {
		struct names names;

		if (l->slots[i].state != FREE && l->slots[i].dir_fd == dir_fd &&
		    take_back(l, &l->slots[i], &names))
			names_release(&names);
	}
	pthread_mutex_unlock(&l->lock);
}
