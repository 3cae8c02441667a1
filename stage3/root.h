/*
 * stage3/root.h - root of the tree, for a provisioning run (docs/provisioning.md).
 *
 * The command is user 0 of a user namespace that has no other id: the kernel refuses it every other owner, and devices. The
 * calls that this would show in are caught by a filter, and init carries them out on the mount, which keeps owners as they are
 * told (stage3/root_abi.h); what it cannot, or need not, the kernel does as if nobody had looked. Nothing here gives a right: init
 * has what the command has, in the same namespaces, and what is caught is judged by the same file system.
 *
 * Caught: chown and its like, mknod of devices, stat and its like, access lists that name others, and what sets and tells the ids of a process
 * (root_who.h). A file's set-id bits and capabilities are the kernel's and the file system's; nothing is executed by them.
 */
#pragma once

/* Two ends, for the child and for init. Errors: negative errno. */
int root_pair(int *ret_child, int *ret_init);
/* The child's: from here on its calls are caught; the descriptor by which goes through @fd. */
int root_catch(int fd);
/* init's, after the child has done so or failed: what to poll and serve; -1. Closes @fd. */
int root_take(int fd);
/* Something is caught: it is answered. @people: all 0 before the first, and the same for all. */
struct root_people;
void root_serve(int fd, struct root_people *people);
