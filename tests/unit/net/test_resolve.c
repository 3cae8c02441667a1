/* net/resolve.c, over a getaddrinfo of the test's own: names that are answered at once, and names that are not until they may be. */
#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "net/resolve.h"
#include "tests/lib/tap.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t let = PTHREAD_COND_INITIALIZER;
static bool may;            /* under lock: what hangs goes on */
static int hanging, looked; /* under lock: now, and lookups begun of all that hang */

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
		struct addrinfo **ret)
{
	struct both {
		struct addrinfo a;
		struct sockaddr_in sa;
	} * b;

	(void)hints;
	(void)pthread_mutex_lock(&lock);
	if (!strncmp(host, "hang", 4)) {
		looked++;
		hanging++;
		while (!may)
			(void)pthread_cond_wait(&let, &lock);
		hanging--;
	}
	(void)pthread_mutex_unlock(&lock);
	b = calloc(1, sizeof(*b));
	if (!b)
		return EAI_MEMORY;
	b->sa = (struct sockaddr_in){.sin_family = AF_INET,
				     .sin_port = htons((uint16_t)atoi(port))};
	b->a = (struct addrinfo){.ai_family = AF_INET,
				 .ai_addrlen = sizeof(b->sa),
				 .ai_addr = (struct sockaddr *)&b->sa};
	*ret = &b->a;
	return 0;
}

void freeaddrinfo(struct addrinfo *a)
{
	free(a);
}

static struct resolver *r;

/* The next answer that somebody waits for, within a while; NULL: there is none. */
static void *answer(int ms, struct resolved *ret)
{
	struct pollfd p = {.fd = resolver_fd(r), .events = POLLIN};

	for (;;) {
		if (resolve_next(r, ret)) {
			if (ret->owner)
				return ret->owner;
			continue;
		}
		if (poll(&p, 1, ms) != 1)
			return NULL;
	}
}

static int hangs(int want)
{
	int n = 0;

	for (int i = 0; i < 200; i++) {
		(void)pthread_mutex_lock(&lock);
		n = hanging;
		(void)pthread_mutex_unlock(&lock);
		if (n == want)
			break;
		(void)usleep(10000);
	}
	return n;
}

static struct resolving *begin(const char *host, void *owner)
{
	struct resolving *x = NULL;

	if (resolve_start(r, host, 80, owner, &x) < 0)
		tap_fatal("no lookup of %s", host);
	return x;
}

static void test_one(void)
{
	struct resolved a;
	int me;

	(void)begin("a.b", &me);
	ok(answer(10000, &a) == &me && a.n == 1 && a.error == 0, "a name is looked up");
	ok(answer(0, &a) == NULL, "once");
}

/* A name server that is silent about one name, of which a program asks and asks. */
static void test_hanging(void)
{
	enum {
		MANY = 200
	};
	struct resolving *x[MANY];
	struct resolved a;
	int owner[MANY], me, left = 0;

	for (int i = 0; i < MANY; i++)
		x[i] = begin("hang.a", &owner[i]);
	ok(hangs(2) == 2, "two threads wait for it");
	(void)begin("a.b", &me);
	ok(answer(10000, &a) == &me, "another name is looked up meanwhile");
	for (int i = 2; i < MANY; i++)
		resolve_drop(r, x[i]);
	for (int i = 0; i < MANY; i++)
		x[i] = begin("hang.a", &owner[i]);
	ok(true, "what was given up has made room");
	for (int i = 0; i < MANY; i++)
		resolve_drop(r, x[i]);
	(void)pthread_mutex_lock(&lock);
	may = true;
	(void)pthread_cond_broadcast(&let);
	(void)pthread_mutex_unlock(&lock);
	while (answer(300, &a))
		left++;
	eq_int(left, 2, "the two are answered");
	eq_int(looked, 2, "and nothing is looked up that nobody waits for");
}

static void test_full(void)
{
	struct resolving *x;
	struct resolved a;
	int me, n = 0, got = 0;

	(void)pthread_mutex_lock(&lock);
	may = false;
	(void)pthread_mutex_unlock(&lock);
	while (n < 10000 && resolve_start(r, "hang.b", 80, &me, &x) == 0)
		n++;
	eq_int(n, 256, "more than so many do not wait");
	(void)pthread_mutex_lock(&lock);
	may = true;
	(void)pthread_cond_broadcast(&let);
	(void)pthread_mutex_unlock(&lock);
	while (got < n && answer(10000, &a))
		got++;
	eq_int(got, n, "all of them are answered, though one name has two threads");
	(void)begin("a.b", &me);
	ok(answer(10000, &a) == &me, "and then there is room");
}

int main(void)
{
	if (resolver_new(&r) < 0)
		tap_fatal("no resolver");
	test_one();
	test_hanging();
	test_full();
	return tap_done();
}
