/* Telling the front end about inodes that changed below it, from a thread that serves nothing: the
 * kernel may hold, and wait for, what a request handler holds. */
#include <stdlib.h>

#include "fs/core/ovl_internal.h"

static void *notify_main(void *arg)
{
	struct ovl *o = arg;
	struct notifier *nt = &o->notifier;

	pthread_mutex_lock(&nt->lock);
	while (!nt->stop) {
		struct notice *list = nt->first;

		if (!list) {
			pthread_cond_wait(&nt->cond, &nt->lock);
			continue;
		}
		nt->first = NULL;
		nt->last = &nt->first;
		pthread_mutex_unlock(&nt->lock);
		while (list) {
			struct notice *next = list->next;

			o->notify.inval_inode(o->notify.arg, list->ino);
			free(list);
			list = next;
		}
		pthread_mutex_lock(&nt->lock);
	}
	pthread_mutex_unlock(&nt->lock);
	return NULL;
}

int notify_start(struct ovl *o)
{
	struct notifier *nt = &o->notifier;
	int r;

	nt->last = &nt->first;
	pthread_mutex_init(&nt->lock, NULL);
	pthread_cond_init(&nt->cond, NULL);
	if (!o->notify.inval_inode)
		return 0;
	r = pthread_create(&nt->thread, NULL, notify_main, o);
	nt->running = r == 0;
	return -r;
}

void notify_stop(struct ovl *o)
{
	struct notifier *nt = &o->notifier;

	if (nt->running) {
		pthread_mutex_lock(&nt->lock);
		nt->stop = true;
		pthread_cond_signal(&nt->cond);
		pthread_mutex_unlock(&nt->lock);
		(void)pthread_join(nt->thread, NULL);
	}
	while (nt->first) {
		struct notice *next = nt->first->next;

		free(nt->first);
		nt->first = next;
	}
	pthread_cond_destroy(&nt->cond);
	pthread_mutex_destroy(&nt->lock);
}

void notify_inode(struct ovl *o, store_ino ino)
{
	struct notifier *nt = &o->notifier;
	struct notice *k;

	if (!nt->running)
		return;
	k = calloc(1, sizeof(*k));
	if (!k)
		return; /* the answer's time limit still holds */
	k->ino = ino;
	pthread_mutex_lock(&nt->lock);
	*nt->last = k;
	nt->last = &k->next;
	pthread_cond_signal(&nt->cond);
	pthread_mutex_unlock(&nt->lock);
}
