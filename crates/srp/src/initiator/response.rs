//! What an SRP_RSP means.

use scsi::host::{CommandFailure, ReceivedSense, Transfer};
use zerocopy::FromBytes as _;

use super::error::InitiatorError;
use crate::wire::{ManagementResult, ResponseHeader};

/// An SRP_RSP whose lists lie inside its message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response<'a> {
    pub(super) header: ResponseHeader,
    /// RSP_CODE, if there are response data.
    code: Option<u8>,
    sense: &'a [u8],
}

/// RSP_CODE of response data that report no failure.
const NO_FAILURE: u8 = ManagementResult::Complete as u8;

impl<'a> Response<'a> {
    pub(super) fn parse(message: &'a [u8]) -> Result<Self, InitiatorError> {
        let truncated = InitiatorError::Length(message.len());
        let parsed = ResponseHeader::read_from_prefix(message);
        let (header, rest) = parsed.map_err(|_| truncated)?;
        let len_if = |flag, len: u32| if header.flags & flag == 0 { 0 } else { len };
        let code_len = len_if(ResponseHeader::RESPONSE_VALID, header.response_len.get());
        let sense_len = len_if(ResponseHeader::SENSE_VALID, header.sense_len.get());
        let (response, rest) = rest.split_at_checked(code_len as usize).ok_or(truncated)?;
        let sense = rest.get(..sense_len as usize).ok_or(truncated)?;
        let code = match response {
            [] => None,
            // Bytes 0 to 2 are reserved.
            &[_, _, _, code, ..] => Some(code),
            _ => return Err(truncated),
        };
        Ok(Self {
            header,
            code,
            sense,
        })
    }

    /// How a command with this transfer ended: how many bytes were moved, or why it failed.
    pub(super) fn result(
        &self,
        transfer: Transfer,
    ) -> Result<Result<u32, CommandFailure>, InitiatorError> {
        if let Some(response) = self.code.filter(|code| *code != NO_FAILURE) {
            return Ok(Err(CommandFailure::Undelivered { response }));
        }
        let status = self.header.status;
        if status != 0 {
            let sense = ReceivedSense::parse(self.sense);
            return Ok(Err(CommandFailure::Status { status, sense }));
        }
        let len_bytes = transfer.len_bytes();
        let (flag, residual) = match transfer {
            Transfer::None => return Ok(Ok(0)),
            Transfer::ToHost(_) => (
                ResponseHeader::DATA_IN_UNDER,
                self.header.data_in_residual.get(),
            ),
            Transfer::ToTarget(_) => (
                ResponseHeader::DATA_OUT_UNDER,
                self.header.data_out_residual.get(),
            ),
        };
        if self.header.flags & flag == 0 {
            return Ok(Ok(len_bytes));
        }
        let moved_bytes = len_bytes.checked_sub(residual);
        let moved_bytes = moved_bytes.ok_or(InitiatorError::Residual {
            residual,
            len_bytes,
        })?;
        Ok(Ok(moved_bytes))
    }

    /// Whether a task management function is complete.
    pub(super) fn is_function_complete(&self) -> bool {
        self.code == Some(ManagementResult::Complete as u8)
    }
}
