// All kernels of the table.
#pragma once

#include "calibrate/kernels/device/attention_backward.hpp"
#include "calibrate/kernels/device/collectives.hpp"
#include "calibrate/kernels/device/gemm.hpp"
#include "calibrate/kernels/device/pointwise.hpp"
#include "calibrate/kernels/device/rates.hpp"
#include "calibrate/kernels/device/rows.hpp"
#include "calibrate/kernels/device/streaming.hpp"
