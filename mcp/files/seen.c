#include "mcp/files/seen.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SEEN_MAX 1024 /* a power of two */

struct one {
	uint64_t key; /* 0: none */
	char version[11];
};

struct seen {
	pthread_mutex_t lock;
	struct one v[SEEN_MAX]; /* under lock */
};

int seen_new(struct seen **ret)
{
	struct seen *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	(void)pthread_mutex_init(&s->lock, NULL);
	*ret = s;
	return 0;
}

void seen_free(struct seen *s)
{
	if (!s)
		return;
	(void)pthread_mutex_destroy(&s->lock);
	free(s);
}

static uint64_t mix(uint64_t h, const char *s)
{
	do
		h = (h ^ (unsigned char)*s) * 0x100000001b3u;
	while (*s++);
	return h;
}

static uint64_t key_of(const char *env, const char *path)
{
	uint64_t h = mix(mix(0xcbf29ce484222325u, env), path);

	h ^= h >> 32;
	return h ? h : 1;
}

void seen_put(struct seen *s, const char *env, const char *path, const char *version)
{
	uint64_t key = key_of(env, path);
	struct one *o = &s->v[key % SEEN_MAX];

	(void)pthread_mutex_lock(&s->lock);
	o->key = key;
	memcpy(o->version, version, sizeof(o->version));
	(void)pthread_mutex_unlock(&s->lock);
}

bool seen_other(struct seen *s, const char *env, const char *path, const char *version,
		char ret[static 11])
{
	uint64_t key = key_of(env, path);
	const struct one *o = &s->v[key % SEEN_MAX];
	bool other;

	(void)pthread_mutex_lock(&s->lock);
	other = o->key == key && strcmp(o->version, version) != 0;
	if (other)
		memcpy(ret, o->version, sizeof(o->version));
	(void)pthread_mutex_unlock(&s->lock);
	return other;
}
