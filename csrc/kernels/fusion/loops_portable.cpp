#define CPU_CAPABILITY DEFAULT
#define CPU_CAPABILITY_DEFAULT
#include "kernels/fusion/loops.h"

namespace joinsum::kernels::fusion {

template <class T>
Loops<T> portable_loops() {
  return LoopsOf<T>::all();
}

template Loops<float> portable_loops();
template Loops<double> portable_loops();

}  // namespace joinsum::kernels::fusion
