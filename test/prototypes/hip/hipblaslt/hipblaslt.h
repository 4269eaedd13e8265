// hipBLASLt: only its handle.
#pragma once

typedef void* hipblasLtHandle_t;
