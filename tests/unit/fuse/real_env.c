#include "tests/unit/fuse/real_env.h"

#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

/* A root directory, owned as everything else there will be. */
static int make_env(struct store *st, struct store_env *ret)
{
	store_layer base;
	struct store_batch *b;
	struct rec_inode root = {.mode = S_IFDIR | 0755, .nlink = 2, .parent = STORE_ROOT_INO};
	int res = store_layer_new(st, 0, &base);

	(void)clock_gettime(CLOCK_REALTIME, &root.mtime);
	root.atime = root.ctime = root.btime = root.mtime;
	if (res == 0)
		res = store_batch_begin(st, base, &b);
	if (res < 0)
		return res;
	res = store_batch_inode(b, STORE_ROOT_INO, &root);
	if (res == 0)
		res = store_batch_commit(b);
	else
		store_batch_abort(b);
	if (res == 0)
		res = store_layer_seal(st, base);
	return res < 0 ? res : store_env_create(st, "t", base, "test", ret);
}

int real_env_open(const char *dir, struct store **ret, struct store_env *ret_env)
{
	struct diag diag = {0};
	int res = store_open(dir, STORE_CREATE, &diag, ret);

	if (res < 0) {
		(void)fprintf(stderr, "%s\n", diag.text);
		return res;
	}
	res = store_env_get(*ret, "t", ret_env);
	return res == -ENOENT ? make_env(*ret, ret_env) : res;
}
