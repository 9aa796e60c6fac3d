// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/comm/mpi_sum.hpp>

namespace ostrakon::comm {
namespace {

/// The reduction function that MPI calls; it must not throw.
template <class T>
void add(void* from, void* to, int* count, MPI_Datatype* type) {
  int bytes = 0;
  MPI_Type_size(*type, &bytes);
  const std::int64_t elements = *count * (bytes / static_cast<std::int64_t>(sizeof(T)));
  const T* const a = static_cast<const T*>(from);
  T* const b = static_cast<T*>(to);
  for (std::int64_t i = 0; i < elements; ++i)
    b[i] = static_cast<T>(static_cast<float>(a[i]) + static_cast<float>(b[i]));
}

/// Returns an MPI operation that is created once per program, and freed by MPI_Finalize.
template <class T>
MPI_Op op_of() {
  static const MPI_Op op = [] {
    MPI_Op made = MPI_OP_NULL;
    check_mpi(MPI_Op_create(add<T>, 1, &made), "MPI_Op_create");
    return made;
  }();
  return op;
}

}  // namespace

MPI_Op mpi_sum_of_blocks(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return op_of<bf16>();
    case DType::fp16:
      return op_of<fp16>();
    default:
      return op_of<float>();
  }
}

MpiSum mpi_sum(DType dtype) {
  if (dtype == DType::fp32) return {MPI_FLOAT, MPI_SUM};
  return {MPI_UINT16_T, mpi_sum_of_blocks(dtype)};
}

}  // namespace ostrakon::comm
