/* stage3/status.h - messages to the runner. Errors: negative errno. */
#pragma once

#include "stage3/stage3_abi.h"

int status_send(const struct stage3_msg *m);
/* With a descriptor for the runner. */
int status_send_fd(const struct stage3_msg *m, int fd);
void status_failed(enum stage3_step step, int error);
