/* tests/unit/ctl/rig.h - a data directory, a runtime directory and a host directory of a test's own, and files through
 * the mount that a client is handed. One thread, but for what takes a client of its own. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "fs/ctl/ctl_client.h"

struct place {
	char top[64], data[80], host[80]; /* host has the file f, which reads "host" */
};

/* Skips the test where there are no namespaces; sets XDG_RUNTIME_DIR. */
void place_make(struct place *p);
void place_remove(const struct place *p);

/* A file in @dir, which is made when it is not there. */
void put_host(const char *dir, const char *name, const char *text);

/* The environment "default", begun when it is not there. */
struct ctl *open_env(const struct place *p, const char *const *writable);
pid_t daemon_of(struct ctl *c);
/* The daemon's socket. */
void sock_of_default(char ret[static 4096]);

/* Negative: errno of what failed. */
int put_file(struct ctl *c, const char *path, const char *text);
int get_file(struct ctl *c, const char *path, char ret[static 64]);
/* Without a client: a file of @dir. */
int slurp(const char *dir, const char *name, char ret[static 64]);
