#pragma once

namespace joinsum::runtime::communication {

/// Lets the threads of this process that read and write Gloo's sockets start when a core is free, not at once where
/// another thread computes; Linux only. Such a thread asks the kernel again and again for what is ready while another
/// one holds the lock of a connection. If it has taken that thread's core, both wait until the scheduler's next turn, 3
/// ms later.
void let_gloo_threads_yield();

}  // namespace joinsum::runtime::communication
