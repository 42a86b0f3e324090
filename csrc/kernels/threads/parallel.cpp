#include "kernels/threads/parallel.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

#include "base/dims.h"

namespace joinsum::kernels::threads {

// at::parallel_for is compiled where it is called: without OpenMP's flag it has one thread, and with another OpenMP
// than torch's two sets of them. An iterator's loops are torch's own.
void for_each_range(int64_t pieces, int64_t grain, const std::function<void(int64_t, int64_t)>& work) {
  if (pieces <= grain || at::get_num_threads() == 1) {
    if (pieces > 0) work(0, pieces);
    return;
  }
  const at::Tensor numbers = at::empty({ceil_div(pieces, grain)}, at::kByte);
  auto iterator =
      at::TensorIteratorConfig().check_all_same_dtype(false).resize_outputs(false).add_output(numbers).build();
  const auto* first = numbers.const_data_ptr<uint8_t>();
  iterator.for_each(
      [&](char** data, const int64_t*, int64_t inner, int64_t outer) {
        const int64_t begin = reinterpret_cast<const uint8_t*>(data[0]) - first;
        work(begin * grain, std::min((begin + inner * outer) * grain, pieces));
      },
      /*grain_size=*/1);
}

}  // namespace joinsum::kernels::threads
