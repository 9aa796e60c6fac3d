// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <ostrakon/base/dtype.hpp>

namespace ostrakon::comm {

/// MPI type and operation to sum arrays of a dtype, in an order that MPI chooses.
struct MpiSum {
  MPI_Datatype type;
  MPI_Op op;
};

/// Returns MPI_SUM for floats; for 16-bit floats, which MPI does not know, an operation that adds
/// two of them in float and rounds.
MpiSum mpi_sum(DType dtype);

/// Returns the operation for MPI types made of several elements of `dtype`, such as blocks.
MPI_Op mpi_sum_of_blocks(DType dtype);

}  // namespace ostrakon::comm
