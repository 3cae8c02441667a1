/* stage3/status.h - messages to the runner. Errors: negative errno. */
#pragma once

#include "stage3/stage3_abi.h"

int status_send(const struct stage3_msg *m);
/* With a descriptor for the runner. */
int status_send_fd(const struct stage3_msg *m, int fd);
/* From the runner; *ret_fd is -1 when none came with it. -ECANCELED: the runner is gone, or says what we do not know. */
int status_receive_fd(struct stage3_msg *ret, int *ret_fd);
void status_failed(enum stage3_step step, int error);
