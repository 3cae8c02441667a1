#include "fs/core/hidden.h"

#include <string.h>

/* The clock that file systems stamp times with: a change after this moment has no earlier time. */
static struct timespec stamp(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_REALTIME_COARSE, &t);
	return t;
}

void hidden_of(const struct stat *st, struct hidden *ret)
{
	*ret = (struct hidden){.mode = st->st_mode,
			       .dev = st->st_dev,
			       .ino = st->st_ino,
			       .size = (uint64_t)st->st_size,
			       .mtime = st->st_mtim,
			       .ctime = st->st_ctim,
			       .at = stamp()};
}

static void put64(uint8_t **p, uint64_t v)
{
	for (int i = 56; i >= 0; i -= 8)
		*(*p)++ = (uint8_t)(v >> i);
}

static void put32(uint8_t **p, uint32_t v)
{
	for (int i = 24; i >= 0; i -= 8)
		*(*p)++ = (uint8_t)(v >> i);
}

static uint64_t get(const uint8_t **p, int n)
{
	uint64_t v = 0;

	while (n--)
		v = v << 8 | *(*p)++;
	return v;
}

static struct timespec get_time(const uint8_t **p)
{
	struct timespec t = {.tv_sec = (time_t)get(p, 8)};

	t.tv_nsec = (long)get(p, 4);
	return t;
}

static void put_time(uint8_t **p, const struct timespec *t)
{
	put64(p, (uint64_t)t->tv_sec);
	put32(p, (uint32_t)t->tv_nsec);
}

void hidden_encode(const struct hidden *h, uint8_t p[static HIDDEN_LEN])
{
	put32(&p, h->mode);
	put64(&p, h->dev);
	put64(&p, h->ino);
	put64(&p, h->size);
	put_time(&p, &h->mtime);
	put_time(&p, &h->ctime);
	put_time(&p, &h->at);
}

int hidden_decode(const void *bytes, size_t n, struct hidden *ret)
{
	const uint8_t *p = bytes;

	if (n != HIDDEN_LEN)
		return -EBADMSG;
	ret->mode = (uint32_t)get(&p, 4);
	ret->dev = get(&p, 8);
	ret->ino = get(&p, 8);
	ret->size = get(&p, 8);
	ret->mtime = get_time(&p);
	ret->ctime = get_time(&p);
	ret->at = get_time(&p);
	return 0;
}

void hidden_key(const char *name, size_t len, char ret[static HIDDEN_KEY_LEN])
{
	size_t n = len < HIDDEN_KEY_LEN - 2 ? len : HIDDEN_KEY_LEN - 2;

	ret[0] = '\1';
	memcpy(ret + 1, name, n);
	ret[1 + n] = '\0';
}
