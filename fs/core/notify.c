/* Telling the front end about inodes that changed below it, from a thread that serves nothing: the
 * kernel may hold, and wait for, what a request handler holds. */
#include <stdlib.h>
#include <time.h>

#include "base/io.h"
#include "base/thread.h"
#include "fs/core/ovl_internal.h"

#define HOUSE_MS 500 /* between two rounds of housekeeping */

/* With nt->lock: until something is asked of the thread, but not longer than @ms. */
static void wait_for(struct notifier *nt, long ms)
{
	thread_cond_wait_ns(&nt->cond, &nt->lock, (int64_t)ms * 1000000);
}

/* With nt->lock, which is dropped meanwhile. */
static void keep_house(struct ovl *o, int64_t *next)
{
	struct notifier *nt = &o->notifier;

	if (io_now_ms() < *next) {
		wait_for(nt, HOUSE_MS / 5);
		return;
	}
	nt->housekeeping = false;
	pthread_mutex_unlock(&nt->lock);
	memory_housekeeping(o);
	*next = io_now_ms() + HOUSE_MS;
	pthread_mutex_lock(&nt->lock);
}

/* With nt->lock, which is dropped meanwhile. */
static void let_go(struct ovl *o, int64_t *next)
{
	struct notifier *nt = &o->notifier;
	int64_t now = io_now_ms();

	if (now < *next) {
		wait_for(nt, (long)(*next - now));
		return;
	}
	atomic_store(&nt->holding, false);
	pthread_mutex_unlock(&nt->lock);
	if (host_let_go(o))
		atomic_store(&nt->holding, true);
	*next = io_now_ms() + HOST_HELD_MS;
	pthread_mutex_lock(&nt->lock);
}

static void tell(struct ovl *o, struct notice *list)
{
	while (list) {
		struct notice *next = list->next;

		if (list->len && o->notify.inval_entry)
			o->notify.inval_entry(o->notify.arg, list->ino, list->name, list->len);
		else if (!list->len && o->notify.inval_inode)
			o->notify.inval_inode(o->notify.arg, list->ino);
		free(list);
		list = next;
	}
}

static void *notify_main(void *arg)
{
	struct ovl *o = arg;
	struct notifier *nt = &o->notifier;
	int64_t house = 0, held = 0;

	pthread_mutex_lock(&nt->lock);
	while (!nt->stop) {
		struct notice *list = nt->first;

		if (list) {
			nt->first = NULL;
			nt->last = &nt->first;
			pthread_mutex_unlock(&nt->lock);
			tell(o, list);
			pthread_mutex_lock(&nt->lock);
		} else if (nt->housekeeping) {
			keep_house(o, &house);
		} else if (atomic_load(&nt->holding)) {
			let_go(o, &held);
		} else {
			pthread_cond_wait(&nt->cond, &nt->lock);
		}
	}
	pthread_mutex_unlock(&nt->lock);
	return NULL;
}

int notify_start(struct ovl *o)
{
	struct notifier *nt = &o->notifier;
	int r;

	if (!o->notify.inval_inode && !o->notify.prune)
		return 0;
	pthread_mutex_lock(&nt->lock);
	r = pthread_create(&nt->thread, NULL, notify_main, o);
	nt->running = r == 0;
	pthread_mutex_unlock(&nt->lock);
	return -r;
}

void notify_init(struct ovl *o)
{
	struct notifier *nt = &o->notifier;

	nt->last = &nt->first;
	pthread_mutex_init(&nt->lock, NULL);
	(void)thread_cond_init(&nt->cond);
}

int ovl_notify_begin(struct ovl *o, const struct ovl_notify *n)
{
	o->notify = *n;
	o->notifier.stop = false;
	return notify_start(o);
}

void ovl_notify_end(struct ovl *o)
{
	struct notifier *nt = &o->notifier;
	bool running;

	pthread_mutex_lock(&nt->lock);
	running = nt->running;
	nt->running = false;
	nt->stop = true;
	pthread_cond_signal(&nt->cond);
	pthread_mutex_unlock(&nt->lock);
	if (running)
		(void)pthread_join(nt->thread, NULL);
}

void notify_release(struct ovl *o)
{
	struct notifier *nt = &o->notifier;

	while (nt->first) {
		struct notice *next = nt->first->next;

		free(nt->first);
		nt->first = next;
	}
	pthread_cond_destroy(&nt->cond);
	pthread_mutex_destroy(&nt->lock);
}

void notify_entry(struct ovl *o, store_ino parent, const char *name, size_t len)
{
	struct notifier *nt = &o->notifier;
	struct notice *k;

	k = calloc(1, sizeof(*k) + len + 1);
	if (!k)
		return; /* the answer's time limit still holds */
	k->ino = parent;
	k->len = len;
	if (len)
		memcpy(k->name, name, len);
	pthread_mutex_lock(&nt->lock);
	if (nt->running) {
		*nt->last = k;
		nt->last = &k->next;
		pthread_cond_signal(&nt->cond);
		k = NULL;
	}
	pthread_mutex_unlock(&nt->lock);
	free(k);
}

void notify_inode(struct ovl *o, store_ino ino)
{
	notify_entry(o, ino, NULL, 0);
}

void notify_holding(struct ovl *o)
{
	struct notifier *nt = &o->notifier;

	if (atomic_load_explicit(&nt->holding, memory_order_relaxed))
		return;
	pthread_mutex_lock(&nt->lock);
	atomic_store(&nt->holding, true);
	pthread_cond_signal(&nt->cond);
	pthread_mutex_unlock(&nt->lock);
}

void notify_housekeeping(struct ovl *o)
{
	struct notifier *nt = &o->notifier;

	pthread_mutex_lock(&nt->lock);
	if (nt->running && !nt->housekeeping) {
		nt->housekeeping = true;
		pthread_cond_signal(&nt->cond);
	}
	pthread_mutex_unlock(&nt->lock);
}
