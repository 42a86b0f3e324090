#pragma once

#include <string>

#include <ATen/Version.h>

namespace joinsum::kernels::processor {

/// The loops with the widest vectors that this processor has, of those that were compiled: each of the first three
/// makes the loops for its vectors, and `compiled` says whether there are any. As for torch's own kernels,
/// ATEN_CPU_CAPABILITY lowers the choice.
template <class Make512, class Make256, class MakePortable, class IsCompiled>
auto widest(Make512 avx512, Make256 avx2, MakePortable portable, IsCompiled compiled) {
  const std::string capability = at::get_cpu_capability();
  if (capability == "AVX512") {
    if (auto loops = avx512(); compiled(loops)) return loops;
  }
  if (capability.starts_with("AVX")) {
    if (auto loops = avx2(); compiled(loops)) return loops;
  }
  return portable();
}

}  // namespace joinsum::kernels::processor
