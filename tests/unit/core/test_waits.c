/* How long others wait while a commit takes a large host file in. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/io.h"
#include "tests/unit/core/ovl_fixture.h"

#define BIG (96u << 20)

struct other {
	struct fx *f;
	atomic_bool stop;
	long long longest; /* ms */
	unsigned made;
};

/* A changing operation after the other, as a program beside the commit does. */
static void *work(void *arg)
{
	struct other *w = arg;

	while (!atomic_load(&w->stop)) {
		long long t = io_now_ms();
		char name[32];

		snprintf(name, sizeof(name), "n%u", w->made++);
		if (fx_make(w->f, name, FX_FILE, 0644) < 0)
			tap_fatal("create");
		t = io_now_ms() - t;
		if (t > w->longest)
			w->longest = t;
		(void)usleep(1000);
	}
	return NULL;
}

static void put_big(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	uint64_t block[1024], x = 1;

	for (size_t n = 0; fd >= 0 && n < BIG; n += sizeof(block)) {
		for (size_t i = 0; i < ARRAY_SIZE(block); i++)
			block[i] = x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
		if (write(fd, block, sizeof(block)) != (ssize_t)sizeof(block))
			tap_fatal("write %s", path);
	}
	if (fd < 0 || close(fd) < 0)
		tap_fatal("%s", path);
}

int main(void)
{
	char host[PATH_MAX], big[PATH_MAX];
	struct other w = {.stop = false};
	long long took;
	struct fx f;
	pthread_t t;

	fx_open(&f);
	fx_path(&f, "host", host);
	fx_path(&f, "host/big", big);
	if (mkdir(host, 0755) < 0)
		tap_fatal("mkdir");
	put_big(big);
	fx_child(&f, fx_host_layer(&f, host, 0));
	f.opts.flush_ms = 20;
	fx_mount(&f);
	eq_int(fx_write(&f, "big", 0, "X", 1), 1, "one byte of a large host file");
	w.f = &f;
	if (pthread_create(&t, NULL, work, &w) != 0)
		tap_fatal("thread");
	took = io_now_ms();
	eq_int(ovl_commit(f.o, fx_seal, &f), 0, "a commit takes all of it");
	took = io_now_ms() - took;
	atomic_store(&w.stop, true);
	(void)pthread_join(t, NULL);
	printf("# commit %lld ms, %u files made meanwhile, longest wait %lld ms\n", took, w.made,
	       w.longest);
	ok(w.longest * 2 < took, "nobody waits for all of it");
	fx_close(&f);
	return tap_done();
}
